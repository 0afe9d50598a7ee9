"""A double of ECR's evaluator of lifecycle policies: moto stores policies, but does not evaluate them. Pure.

It follows the evaluation rules of AWS's user guide (LifecyclePolicies.html), and agrees with the examples A and B of
its page lifecycle_policy_examples.html, section "Filtering on multiple rules". Rules are applied from the lowest
rulePriority up. A rule with several patterns matches an image that has a tag for each. A count keeps the images pushed
last, and also counts images that an earlier rule expires. Only the first rule that an image matches can expire it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Image:
    """An image of a repository; pushed: the day."""

    digest: str
    pushed: int
    tags: tuple[str, ...] = ()


def expired(policy: Mapping[str, Any], images: Sequence[Image], today: int) -> set[str]:
    """The digests of the images that a policy expires on a day."""
    expired_digests: set[str] = set()
    matched_digests: set[str] = set()
    for rule in sorted(policy["rules"], key=lambda rule: int(rule["rulePriority"])):
        selection = rule["selection"]
        matched = [image for image in images if _matches(selection, image)]
        if selection["countType"] == "imageCountMoreThan":
            newest = sorted(matched, key=lambda image: -image.pushed)
            old = newest[selection["countNumber"] :]
        else:
            old = [image for image in matched if today - image.pushed > selection["countNumber"]]
        expired_digests |= {image.digest for image in old} - matched_digests
        matched_digests |= {image.digest for image in matched}
    return expired_digests


def _matches(selection: Mapping[str, Any], image: Image) -> bool:
    if selection["tagStatus"] == "any":
        return True
    if selection["tagStatus"] == "untagged":
        return not image.tags
    patterns = [".*".join(map(re.escape, each.split("*"))) for each in selection["tagPatternList"]]
    return all(any(re.fullmatch(pattern, tag) for tag in image.tags) for pattern in patterns)
