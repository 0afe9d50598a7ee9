"""What the lifecycle policy expires over a history of pushes, and what it never does."""

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


GUIDES = [Image("A", 1, ("beta-1", "prod-1")), Image("B", 2, ("beta-2", "prod-2")), Image("C", 3, ("beta-3",))]


@pytest.mark.parametrize(
    ("first", "second", "gone"),
    [
        pytest.param("prod*", "beta*", {"A"}, id="B-is-what-the-first-rule-keeps"),
        pytest.param("beta*", "prod*", {"A", "B"}, id="the-first-rule-takes-both"),
    ],
)
def test_the_double_gives_what_the_user_guide_gives_for_its_examples(first: str, second: str, gone: set[str]) -> None:
    """Section "Filtering on multiple rules" of lifecycle_policy_examples.html, its examples A and B."""
    assert expired({"rules": [rule(1, first, 1), rule(2, second, 1)]}, GUIDES, 4) == gone


class Repository:
    """A repository whose policy is evaluated each night."""

    def __init__(self) -> None:
        self.policy = documents.lifecycle_policy()
        self.images: dict[str, Image] = {}
        self.day = 0

    def push(self, digest: str, *tags: str) -> None:
        """Of an image that is there, more tags: its day stays."""
        there = self.images.get(digest, Image(digest, self.day))
        its = retention.tags(tuple(dict.fromkeys((*there.tags, *tags))), f"sha256:{digest}")
        self.images = {
            name: replace(image, tags=tuple(tag for tag in image.tags if tag not in tags))
            for name, image in self.images.items()
        }
        self.images[digest] = replace(there, tags=its)

    def night(self) -> None:
        for digest in expired(self.policy, list(self.images.values()), self.day):
            del self.images[digest]
        self.day += 1


def build(number: int, profile: str = "cpu", end: str = "") -> str:
    return build_tag("0.1.0", profile, f"{number:012x}{end}")


@pytest.mark.parametrize("profile", [*pins.profile_names(), "my-cpu-hf4", "a_b.c"])
@pytest.mark.parametrize("revision", ["1a2b3c4d5e6f", "1a2b3c4d5e6f-dirty-00aa11bb", "none-00aa11bb"])
def test_a_build_of_every_profile_is_known_as_one_and_expires(profile: str, revision: str) -> None:
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


def test_no_release_ever_expires_and_the_last_builds_stay() -> None:
    ecr = Repository()
    ecr.push("release", build(0), "1.0")  # pushed as a release
    ecr.push("later", build(1))
    ecr.push("later", "1.1")  # released when it was there as a build
    ecr.push("promoted", "prod")  # with no tag of its build
    ecr.push("lonely", build(2, "cu124"))
    for number in range(3, 203):
        ecr.push(f"build-{number}", build(number))
        ecr.night()
    ecr.push("new", build(999), "prod")
    for _ in range(400):
        ecr.night()
    assert {"release", "later", "new"} <= ecr.images.keys()
    assert "promoted" in ecr.images  # endpoints may run on what prod was on before
    assert "lonely" not in ecr.images  # the builds of all profiles are counted together
    # Of the builds the releases that have a build's tag are counted as well, which are the newest one here.
    assert {name for name in ecr.images if name.startswith("build")} == {f"build-{n}" for n in range(154, 203)}


def test_without_the_rule_the_same_history_loses_a_release() -> None:
    ecr = Repository()
    ecr.policy["rules"] = [each for each in ecr.policy["rules"] if each["rulePriority"] != 1]
    ecr.push("release", build(0), "1.0")
    for number in range(1, KEEP + 2):
        ecr.push(f"build-{number}", build(number))
        ecr.night()
    assert "release" not in ecr.images


@pytest.mark.parametrize(
    ("tags", "all_tags"),
    [
        pytest.param([build(1)], [build(1)], id="a-build"),
        pytest.param([build(1, end="-dirty")], [build(1, end="-dirty")], id="one-with-changes"),
        pytest.param([build(1), "1.0"], [build(1), "1.0", "release-1a2b3c4d5e6f"], id="a-release"),
        pytest.param(["prod"], ["prod", "release-1a2b3c4d5e6f"], id="a-copy"),
        pytest.param([], [], id="none"),
    ],
)
def test_which_images_get_the_tag_that_keeps(tags: list[str], all_tags: list[str]) -> None:
    assert retention.tags(tags, "sha256:1a2b3c4d5e6f7788") == tuple(all_tags)


UNTAGGED = {"rulePriority": 9, "selection": {"tagStatus": "untagged", "countNumber": 1}}


@pytest.mark.parametrize(
    ("policy", "keeps"),
    [
        pytest.param(None, True, id="none"),
        pytest.param(documents.lifecycle_policy(), True, id="ours"),
        pytest.param({"rules": [UNTAGGED]}, True, id="of-untagged-ones-alone"),
        pytest.param({"rules": [rule(10, "build-*", 20), UNTAGGED]}, False, id="builds-first"),
        pytest.param({"rules": [rule(1, "*", 20), rule(2, "release-*", 999999)]}, False, id="too-late"),
        pytest.param({"rules": [rule(1, "release-*", 20)]}, False, id="too-few"),
    ],
)
def test_which_policies_keep_releases(policy: Any, keeps: bool) -> None:
    assert retention.keeps_releases(policy) is keeps
