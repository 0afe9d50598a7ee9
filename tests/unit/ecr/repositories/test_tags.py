"""Which tags an image gets where others have the wanted ones, on a registry that is a dictionary."""

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
    """`choose(wanted, held)`: the choice where the tags of `held` name these images."""
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
        pytest.param("1.0", {"1.0": "this"}, ChosenTag("1.0", there=True), id="there"),
        pytest.param("1.0", {"1.0": "older"}, ChosenTag("1.0", IMAGES["older"]), id="moves"),
        pytest.param("1.0", {"1.0": "plain"}, ChosenTag("1.0", IMAGES["plain"]), id="of-no-profile"),
        pytest.param(BUILD, {BUILD: "this"}, ChosenTag(BUILD, there=True), id="the-same-build"),
    ],
)
def test_a_tag_that_is_free_or_may_move_is_taken(choose: Any, wanted: str, held: Any, chosen: ChosenTag) -> None:
    assert choose(wanted, held) == chosen


@pytest.mark.parametrize(
    ("wanted", "held", "tag", "holder"),
    [
        pytest.param("1.0", {"1.0": "cu130"}, "1.0-cpu", None, id="another-profile"),
        pytest.param("1.0", {"1.0": "cu130", "1.0-cpu": "older"}, "1.0-cpu", "older", id="its-second-release"),
        pytest.param(BUILD, {BUILD: "older"}, f"{BUILD}-{DIGITS}", None, id="the-same-commit-built-again"),
    ],
)
def test_another_tag_is_chosen_with_a_line_that_names_who_has_the_wanted_one(
    choose: Any, wanted: str, held: dict[str, str], tag: str, holder: str | None
) -> None:
    found = choose(wanted, held)
    assert (found.tag, found.holder, found.problem) == (tag, IMAGES[holder] if holder else None, "")
    assert found.line.startswith(f"{HERE}:{wanted} is on {HERE}@{IMAGES[held[wanted]].digest}, ")
    assert found.line.endswith(f"this image is tagged {tag}")


def test_the_second_push_of_such_an_image_finds_it_there(choose: Any) -> None:
    found = choose("1.0", {"1.0": "cu130", "1.0-cpu": "this"})
    assert (found.tag, found.there) == ("1.0-cpu", True)
    again = choose(BUILD, {BUILD: "older", f"{BUILD}-{DIGITS}": "this"})
    assert (again.tag, again.there) == (f"{BUILD}-{DIGITS}", True)


@pytest.mark.parametrize(
    ("wanted", "held", "facts"),
    [
        ("1.0", {"1.0": "serve"}, [f"{HERE}:1.0 is on the serve image", "--repository"]),
        ("1.0", {"1.0": "cu130", "1.0-cpu": "cu130"}, [f"{HERE}:1.0 and {HERE}:1.0-cpu both"]),
        ("x" * 126, {"x" * 126: "cu130"}, ["is not allowed", "128"]),
    ],
)
def test_what_of_a_tag_is_refused(choose: Any, wanted: str, held: dict[str, str], facts: list[str]) -> None:
    problem = choose(wanted, held).problem
    assert not [fact for fact in facts if fact not in problem], problem


def test_the_tag_of_a_build_never_moves() -> None:
    assert alternative(BUILD, DIGITS, OURS, CUDA) == f"{BUILD}-{DIGITS}"
    assert alternative(f"{BUILD}-{DIGITS}", DIGITS, OURS, OURS) == f"{BUILD}-{DIGITS}"
