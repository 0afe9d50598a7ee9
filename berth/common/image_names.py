"""What the kit's own images are called: `berth-train:cpu`, and `berth-train:build-0.1.0-cpu-1a2b3c4d5e6f`.

The first name moves with each build of a profile, the second stays with one build. And what any image may be called.
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
"""Begins the tag of every build and of no release: lifecycle rules of ECR see tags alone."""

_NAME = re.compile(r"berth-(?P<image>[a-z]+):(?P<tag>.+)")


def repository_name(image: str) -> str:
    """What an image is called without its tag: berth-train for `train`."""
    return f"berth-{image}"


def image_name(image: str, tag: str) -> str:
    """The whole name of an image; tag: a profile, for the one that was built last, or the tag of a build."""
    return f"{repository_name(image)}:{tag}"


def build_tag(version: str, profile: str, revision: str) -> str:
    """The tag of one build, such as build-0.1.0-cpu-1a2b3c4d5e6f."""
    return f"{BUILD}{version}-{profile}-{revision}"


def is_build_tag(tag: str) -> bool:
    """Whether a tag is a build's and not a release's."""
    return tag.startswith(BUILD)


def parse(name: str) -> tuple[str, str] | None:
    """The image and the tag that a name of the kit's is made of; None for any other name."""
    found = _NAME.fullmatch(name)
    return (found["image"], found["tag"]) if found else None


def is_reference(text: str) -> bool:
    """Whether an engine takes this for the name of an image, of whatever registry."""
    return _REFERENCE.fullmatch(text) is not None
