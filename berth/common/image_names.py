"""Names of berth's images, `berth-train:cpu` and `berth-train:build-0.1.0-cpu-1a2b3c4d5e6f`, and of images in general.

The first moves to each new build of a profile, the second stays with one build.
"""

import re

# The grammar of github.com/distribution/reference: [HOST[:PORT]/]PATH[:TAG][@DIGEST].
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:{_HOST}/)?{_COMPONENT}(?:/{_COMPONENT})*(?::\w[\w.-]{{0,127}})?(?:@[a-z0-9]+:[0-9a-f]{{32,}})?", re.ASCII
)

BUILD = "build-"
"""Prefix of every build's tag, and of no release's: lifecycle rules of ECR only see tags."""

_NAME = re.compile(r"berth-(?P<image>[a-z]+):(?P<tag>.+)")


def repository_name(image: str) -> str:
    """An image's name without its tag: berth-train for `train`."""
    return f"berth-{image}"


def image_name(image: str, tag: str) -> str:
    """An image's name. tag: a profile, for its last build, or a build's tag."""
    return f"{repository_name(image)}:{tag}"


def build_tag(version: str, profile: str, revision: str) -> str:
    """The tag of one build, such as build-0.1.0-cpu-1a2b3c4d5e6f."""
    return f"{BUILD}{version}-{profile}-{revision}"


def is_build_tag(tag: str) -> bool:
    """Whether a tag is a build's, not a release's."""
    return tag.startswith(BUILD)


def parse(name: str) -> tuple[str, str] | None:
    """The image and the tag in a name of berth's; None for any other name."""
    found = _NAME.fullmatch(name)
    return (found["image"], found["tag"]) if found else None


def is_reference(text: str) -> bool:
    """Whether this is a valid image name, of any registry."""
    return _REFERENCE.fullmatch(text) is not None
