"""Keeps releases from expiring in ECR: a release gets an additional tag, which the lifecycle policy keeps.

The rule that expires builds selects an image by its tag `build-…`, and removes it with all its tags. ECR's user guide
says that an image which matches the tags of a rule can't be expired by a rule of lower priority
(LifecyclePolicies.html, evaluation rules). So the first rule of policies/lifecycle.json matches `release-*`, and every
release gets such a tag. It is made of the image's digest, not of the release's tag: when `prod` moves to another image,
endpoints may still use the old one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from berth.common.image_names import is_build_tag
from berth.ecr.registry.client import Registry
from berth.ecr.registry.manifest import Manifest
from berth.ecr.repositories import documents

PREFIX = "release-"
_ID_LENGTH = 12


def tag(digest: str) -> str:
    """The tag that keeps the image with this manifest digest, such as release-1a2b3c4d5e6f."""
    return f"{PREFIX}{digest.partition(':')[2][:_ID_LENGTH]}"


def tags(wanted: Sequence[str], digest: str) -> tuple[str, ...]:
    """The wanted tags of an image in ECR, and if it is a release, the tag that keeps it."""
    return tuple(dict.fromkeys((*wanted, *([tag(digest)] if is_release(wanted) else ()))))


def is_release(tags: Iterable[str]) -> bool:
    """Whether an image with these tags is a release: one of them is not a build's."""
    return any(not is_build_tag(each) for each in tags)


def keep(registry: Registry, repository: str, attached: Manifest) -> None:
    """Gives a document that is attached to a release such a tag, too: the rule for untagged images might expire it."""
    registry.put_manifest(repository, tag(attached.digest), attached)


def keeps_releases(policy: Mapping[str, Any] | None) -> bool:
    """Whether images with such a tag never expire under this lifecycle policy: the first rule for tagged images
    keeps them all, or there is no such rule.
    """
    rules = sorted((policy or {}).get("rules", []), key=lambda rule: int(rule.get("rulePriority", 0)))
    selections = [rule.get("selection", {}) for rule in rules]
    first = next((each for each in selections if each.get("tagStatus") != "untagged"), None)
    return first is None or (
        first.get("tagPatternList") == [f"{PREFIX}*"]
        and first.get("countType") == "imageCountMoreThan"
        and int(first.get("countNumber", 0)) >= documents.EVERY
    )
