"""The tags that an image gets if other images have the wanted ones; the registry is a dictionary."""

from types import SimpleNamespace
from typing import Any

import pytest

from berth.common import labels
from berth.ecr.registry import verify
from berth.ecr.registry.manifest import DOCKER_MANIFEST, Manifest
from berth.ecr.repositories.repository_client import RepositoryClient
from berth.ecr.repositories.tags import ChosenTag, TagOwner, alternative, choose_tags

HERE = "127.0.0.1:5000/berth-train"
DIGITS = "1a2b3c4d"
BUILD = "build-0.1.0-cpu-1a2b3c4d5e6f"


def labelled(kit: str, profile: str) -> dict[str, str]:
    return {labels.KIT: kit, labels.PROFILE: profile}


OURS, CUDA, SERVE, PLAIN = labelled("train", "cpu"), labelled("train", "cu130"), labelled("serve", "cpu"), {"a": "b"}
IMAGES = {name: Manifest(DOCKER_MANIFEST, name.encode()) for name in ("this", "older", "cu130", "serve", "plain")}
LABELS = {"this": OURS, "older": OURS, "cu130": CUDA, "serve": SERVE, "plain": PLAIN}


@pytest.fixture
def choose(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`choose(wanted, held)`: the chosen tag in a repository with the tags and images of `held`."""
    by_digest = {IMAGES[name].digest: found for name, found in LABELS.items()}
    monkeypatch.setattr(verify, "image_labels", lambda registry, repository, manifest: by_digest[manifest.digest])

    def run(wanted: str, held: dict[str, str]) -> ChosenTag:
        registry: Any = SimpleNamespace(
            host="127.0.0.1:5000", manifest=lambda _, tag: IMAGES[held[tag]] if tag in held else None
        )
        owner = TagOwner(OURS, DIGITS, lambda found: found.digest == IMAGES["this"].digest)
        (chosen,) = choose_tags(RepositoryClient(registry, "berth-train", lambda *, renew: None), [wanted], owner)
        return chosen

    return run


@pytest.mark.parametrize(
    ("wanted", "held", "chosen"),
    [
        pytest.param("1.0", {}, ChosenTag("1.0"), id="free"),
        pytest.param("1.0", {"1.0": "this"}, ChosenTag("1.0", is_current=True), id="there"),
        pytest.param("1.0", {"1.0": "older"}, ChosenTag("1.0", IMAGES["older"]), id="moves"),
        pytest.param("1.0", {"1.0": "plain"}, ChosenTag("1.0", IMAGES["plain"]), id="without-profile"),
        pytest.param(BUILD, {BUILD: "this"}, ChosenTag(BUILD, is_current=True), id="same-build"),
    ],
)
def test_free_or_movable_tag_is_chosen(choose: Any, wanted: str, held: Any, chosen: ChosenTag) -> None:
    assert choose(wanted, held) == chosen


@pytest.mark.parametrize(
    ("wanted", "held", "tag", "holder"),
    [
        pytest.param("1.0", {"1.0": "cu130"}, "1.0-cpu", None, id="another-profile"),
        pytest.param("1.0", {"1.0": "cu130", "1.0-cpu": "older"}, "1.0-cpu", "older", id="earlier-release"),
        pytest.param(BUILD, {BUILD: "older"}, f"{BUILD}-{DIGITS}", None, id="same-commit-built-again"),
    ],
)
def test_alternative_tag_is_chosen_with_a_line_that_names_the_holder(
    choose: Any, wanted: str, held: dict[str, str], tag: str, holder: str | None
) -> None:
    found = choose(wanted, held)
    assert (found.tag, found.holder, found.problem) == (tag, IMAGES[holder] if holder else None, "")
    assert found.line.startswith(f"{HERE}:{wanted} is on {HERE}@{IMAGES[held[wanted]].digest}, ")
    assert found.line.endswith(f"this image is tagged {tag}")


def test_second_push_finds_its_alternative_tag(choose: Any) -> None:
    found = choose("1.0", {"1.0": "cu130", "1.0-cpu": "this"})
    assert (found.tag, found.is_current) == ("1.0-cpu", True)
    again = choose(BUILD, {BUILD: "older", f"{BUILD}-{DIGITS}": "this"})
    assert (again.tag, again.is_current) == (f"{BUILD}-{DIGITS}", True)


@pytest.mark.parametrize(
    ("wanted", "held", "facts"),
    [
        ("1.0", {"1.0": "serve"}, [f"{HERE}:1.0 is on the serve image", "--repository"]),
        ("1.0", {"1.0": "cu130", "1.0-cpu": "cu130"}, [f"{HERE}:1.0 and {HERE}:1.0-cpu both"]),
        ("x" * 126, {"x" * 126: "cu130"}, ["is not allowed", "128"]),
    ],
)
def test_tag_problems_of_other_images(choose: Any, wanted: str, held: dict[str, str], facts: list[str]) -> None:
    problem = choose(wanted, held).problem
    assert not [fact for fact in facts if fact not in problem], problem


def test_build_tag_never_moves() -> None:
    assert alternative(BUILD, DIGITS, OURS, CUDA) == f"{BUILD}-{DIGITS}"
    assert alternative(f"{BUILD}-{DIGITS}", DIGITS, OURS, OURS) == f"{BUILD}-{DIGITS}"
