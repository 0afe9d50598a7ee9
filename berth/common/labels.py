"""Labels that berth puts on the images, containers and networks that it makes, and by which it finds them again.

A container inherits the labels of its image, so a container that berth started is recognised by `RUN`, not by `KIT`.
"""

from collections.abc import Mapping

from berth.common.image_names import build_tag

KIT = "berth.kit"
"""On everything that berth makes: `train`, `serve` or `base` on an image, `run` on a container or a network."""

PROFILE = "berth.profile"
"""The profile in docker/pins.toml that an image was built from."""

SOFTWARE = "berth.software"
"""The software set in docker/pins.toml that an image contains."""

RUN = "berth.run"
"""The run's ID, on its containers, and on the network of a `run train` or `run serve`."""

PID = "berth.pid"
"""Process ID of the run's owner, on the owner's machine."""

STARTED = "berth.started"
"""Start time of the owner's process, in the kernel's count: distinguishes it from a later process with the same ID."""

MACHINE = "berth.machine"
"""Hash of the machine's ID, and the process namespace, in which `PID` is valid."""

SOURCE = "org.opencontainers.image"
"""Prefix of OCI's labels of an image's origin: `.version`, `.revision`, `.created` and more."""

LEFT_OUT = "berth.left-out"
"""The parts that a build left out, such as "efa,smddp": the value of the build argument WITHOUT."""

NO_REVISION = "none"
"""The revision of an image that records no commit, such as one of plain `docker build`."""

DOUBLE = "+double"
"""Suffix of the version of a part that is a test double, such as berth.efa="1.47.0+double"."""


def exact(image_labels: Mapping[str, str], profile: str) -> str:
    """The tag of the build that an image's labels describe, such as build-0.1.0-cpu-1a2b3c4d5e6f."""
    return build_tag(version(image_labels), profile, revision(image_labels))


def version(image_labels: Mapping[str, str]) -> str:
    """The version of berth that built an image; "0" without the label."""
    return image_labels.get(f"{SOURCE}.version", "0")


def revision(image_labels: Mapping[str, str]) -> str:
    """12 digits of the commit, with "-dirty" after it if changes were uncommitted; NO_REVISION without the label."""
    return image_labels.get(f"{SOURCE}.revision", NO_REVISION)


def base_name(image_labels: Mapping[str, str]) -> str:
    """The base image that an image was built from; empty without the label."""
    return image_labels.get(f"{SOURCE}.base.name", "")


def left_out(image_labels: Mapping[str, str]) -> list[str]:
    """The parts that an image's build left out."""
    return [part for part in image_labels.get(LEFT_OUT, "").split(",") if part]


def doubles(image_labels: Mapping[str, str]) -> list[str]:
    """The test doubles in an image, by its labels, such as "efa 1.47.0+double". Such an image must not be published."""
    names = sorted(
        name for name, version in image_labels.items() if name.startswith("berth.") and version.endswith(DOUBLE)
    )
    return [f"{name.removeprefix('berth.')} {image_labels[name]}" for name in names]
