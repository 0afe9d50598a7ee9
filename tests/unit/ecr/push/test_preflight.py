"""The preflight of a push: the tags that an image gets; the registry is a dictionary."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from berth.common import labels
from berth.ecr.push import preflight
from berth.ecr.push.preflight import Preflight, PushTask, run_preflight
from berth.ecr.registry import verify
from berth.ecr.registry.manifest import DOCKER_CONFIG, DOCKER_MANIFEST, Descriptor, Manifest, dumped
from berth.ecr.repositories.repository import RepositoryState, WantedRepository
from berth.ecr.repositories.repository_client import RepositoryClient
from berth.images.local_image import LocalImage
from tests.doubles.local_image import local_image

HOST = "111122223333.dkr.ecr.eu-west-1.amazonaws.com"
HERE = f"{HOST}/berth-train"
LABELS = {labels.KIT: "train", labels.PROFILE: "cpu-hf4", f"{labels.SOURCE}.version": "0.1.0"}
CLEAN = {**LABELS, f"{labels.SOURCE}.revision": "1a2b3c4d5e6f"}
DIRTY = {**LABELS, f"{labels.SOURCE}.revision": "1a2b3c4d5e6f-dirty"}
BUILD = "build-0.1.0-cpu-hf4-1a2b3c4d5e6f"


def image(number: int, found: dict[str, str]) -> LocalImage:
    return local_image(found, f"sha256:{number:08x}{'0' * 56}", profile="cpu-hf4", name="berth-train:cpu-hf4")


def manifest(local: LocalImage) -> Manifest:
    return Manifest(DOCKER_MANIFEST, dumped({"config": Descriptor(DOCKER_CONFIG, local.id, 1).as_dict(), "layers": []}))


@pytest.fixture
def preflight_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`preflight_of(image, tags, held)`: the preflight in an immutable repository with the tags and images `held`."""

    def run(pushed: LocalImage, tags: list[str], held: dict[str, LocalImage]) -> Preflight:
        by_digest = {manifest(each).digest: each.labels for each in held.values()}
        monkeypatch.setattr(verify, "image_labels", lambda registry, repository, found: by_digest[found.digest])
        state = RepositoryState("berth-train", "arn", mutability="IMMUTABLE")
        monkeypatch.setattr(preflight.repository, "describe", lambda *_: state)
        registry: Any = SimpleNamespace(
            host=HOST, ping=lambda: None, manifest=lambda _, tag: manifest(held[tag]) if tag in held else None
        )
        client = RepositoryClient(registry, "berth-train", lambda *, renew: None, ecr=object())
        wanted = WantedRepository("berth-train")
        return run_preflight(PushTask(pushed, client, wanted, (pushed.push_tag, *tags), apply=False))

    return run


def test_dirty_images_get_different_tags(preflight_of: Any) -> None:
    first, second = image(1, DIRTY), image(2, DIRTY)
    one = preflight_of(first, [], {})
    assert one.task.tags == (f"{BUILD}-dirty-00000001",)
    two = preflight_of(second, [], {one.task.tags[0]: first})
    assert (two.task.tags, two.problems, two.pushed) == ((f"{BUILD}-dirty-00000002",), (), False)
    again = preflight_of(first, [], {one.task.tags[0]: first})
    assert (again.task.tags, again.problems, again.pushed) == (one.task.tags, (), True)


def test_second_image_of_a_commit_gets_its_own_tag_and_a_warning(preflight_of: Any) -> None:
    first, second = image(1, CLEAN), image(2, CLEAN)
    found = preflight_of(second, [], {BUILD: first})
    assert (found.task.tags, found.problems) == ((f"{BUILD}-00000002",), ())
    (warning,) = found.warnings
    assert f"{HERE}@{manifest(first).digest}" in warning
    assert warning in found.lines


def test_immutable_release_tag_is_refused_and_names_its_image(preflight_of: Any) -> None:
    first = image(1, CLEAN)
    found = preflight_of(image(2, {**CLEAN, f"{labels.SOURCE}.revision": "0" * 12}), ["1.0"], {"1.0": first})
    (problem,) = found.problems
    assert f"{HERE}:1.0 names another image" in problem
    assert f"{HERE}@{manifest(first).digest}" in problem


def test_derived_image_is_pushed_under_its_own_tag(preflight_of: Any) -> None:
    mine = replace(image(3, LABELS), name="me/train:1", derived=True)
    assert preflight_of(mine, [], {}).task.tags == ("1",)
