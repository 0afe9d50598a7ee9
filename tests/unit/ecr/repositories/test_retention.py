"""The lifecycle policy, evaluated over a history of pushes, expires old builds and never a release."""

from dataclasses import replace
from typing import Any

import pytest

from berth.common.image_names import build_tag, is_build_tag
from berth.ecr.repositories import documents, retention
from berth.images.pins import pins
from tests.unit.ecr.lifecycle_double import Image, expired

KEEP = 50
"""Builds that the lifecycle policy keeps."""


def rule(priority: int, pattern: str, count: int) -> dict[str, Any]:
    selection = {"tagStatus": "tagged", "tagPatternList": [pattern], "countType": "imageCountMoreThan"}
    return {"rulePriority": priority, "selection": {**selection, "countNumber": count}, "action": {"type": "expire"}}


class Repository:
    """A repository whose policy is evaluated each night."""

    def __init__(self) -> None:
        self.policy = documents.lifecycle_policy()
        self.images: dict[str, Image] = {}
        self.day = 0

    def push(self, digest: str, *tags: str) -> None:
        """Pushes an image with tags; an existing image keeps its day and its tags."""
        image = self.images.get(digest, Image(digest, self.day))
        all_tags = retention.tags(tuple(dict.fromkeys((*image.tags, *tags))), f"sha256:{digest}")
        self.images = {
            name: replace(other, tags=tuple(tag for tag in other.tags if tag not in tags))
            for name, other in self.images.items()
        }
        self.images[digest] = replace(image, tags=all_tags)

    def night(self) -> None:
        for digest in expired(self.policy, list(self.images.values()), self.day):
            del self.images[digest]
        self.day += 1


def build(number: int, profile: str = "cpu", end: str = "") -> str:
    return build_tag("0.1.0", profile, f"{number:012x}{end}")


@pytest.mark.parametrize("profile", [*pins.profile_names(), "my-cpu-hf4", "a_b.c"])
@pytest.mark.parametrize("revision", ["1a2b3c4d5e6f", "1a2b3c4d5e6f-dirty-00aa11bb", "none-00aa11bb"])
def test_builds_of_every_profile_expire(profile: str, revision: str) -> None:
    tag = build_tag("0.1.0", profile, revision)
    assert is_build_tag(tag)
    assert retention.tags([tag], "sha256:1a2b3c4d5e6f7788") == (tag,)
    ecr = Repository()
    ecr.push("old", tag)
    for number in range(KEEP):
        ecr.night()
        ecr.push(f"build-{number}", build(number, profile))
    ecr.night()
    assert "old" not in ecr.images


def test_releases_never_expire_and_the_last_builds_are_kept() -> None:
    ecr = Repository()
    ecr.push("release", build(0), "1.0")  # pushed as a release
    ecr.push("later", build(1))
    ecr.push("later", "1.1")  # a build that becomes a release
    ecr.push("promoted", "prod")  # without the tag of a build
    ecr.push("lonely", build(2, "cu124"))
    for number in range(3, 203):
        ecr.push(f"build-{number}", build(number))
        ecr.night()
    ecr.push("new", build(999), "prod")
    for _ in range(400):
        ecr.night()
    assert {"release", "later", "new"} <= ecr.images.keys()
    assert "promoted" in ecr.images  # endpoints may use the image that prod was on before
    assert "lonely" not in ecr.images  # the builds of all profiles are counted together
    # The newest release has a build's tag, so it counts as one of the 50.
    assert {name for name in ecr.images if name.startswith("build")} == {f"build-{n}" for n in range(154, 203)}


@pytest.mark.parametrize(
    ("tags", "all_tags"),
    [
        pytest.param([build(1)], [build(1)], id="a-build"),
        pytest.param([build(1, end="-dirty")], [build(1, end="-dirty")], id="dirty-build"),
        pytest.param([build(1), "1.0"], [build(1), "1.0", "release-1a2b3c4d5e6f"], id="a-release"),
        pytest.param(["prod"], ["prod", "release-1a2b3c4d5e6f"], id="a-copy"),
        pytest.param([], [], id="none"),
    ],
)
def test_releases_get_the_tag_that_keeps_them(tags: list[str], all_tags: list[str]) -> None:
    assert retention.tags(tags, "sha256:1a2b3c4d5e6f7788") == tuple(all_tags)


UNTAGGED = {"rulePriority": 9, "selection": {"tagStatus": "untagged", "countNumber": 1}}


@pytest.mark.parametrize(
    ("policy", "keeps"),
    [
        pytest.param(None, True, id="none"),
        pytest.param(documents.lifecycle_policy(), True, id="ours"),
        pytest.param({"rules": [UNTAGGED]}, True, id="untagged-only"),
        pytest.param({"rules": [rule(10, "build-*", 20), UNTAGGED]}, False, id="builds-first"),
        pytest.param({"rules": [rule(1, "*", 20), rule(2, "release-*", 999999)]}, False, id="too-late"),
        pytest.param({"rules": [rule(1, "release-*", 20)]}, False, id="too-few"),
    ],
)
def test_keeps_releases(policy: Any, keeps: bool) -> None:
    assert retention.keeps_releases(policy) is keeps
