"""Labels by which the kit finds again what it made on an engine: images, containers and networks.

A container inherits the labels of its image, so `KIT` alone on a container does not say that the kit started it: `RUN`
does.
"""

from collections.abc import Mapping

from berth.common.image_names import build_tag

KIT = "berth.kit"
"""On everything that the kit makes: `train`, `serve` or `base` on an image, `run` on a container or a network."""

PROFILE = "berth.profile"
"""The row of docker/pins.toml that an image was built from."""

SOFTWARE = "berth.software"
"""The set of docker/pins.toml that an image carries."""

RUN = "berth.run"
"""The run's id, on the containers and the network of one `run train` or `run serve`."""

PID = "berth.pid"
"""Process id of the run's owner, on the owner's machine."""

STARTED = "berth.started"
"""When the owner's process began, in the kernel's own count: a process id in second use is not the owner."""

MACHINE = "berth.machine"
"""Hash of the machine's id, and process namespace, in which `PID` means something."""

SOURCE = "org.opencontainers.image"
"""Begins OCI's labels of what an image was made from: `.version`, `.revision`, `.created` and more."""

LEFT_OUT = "berth.left-out"
"""The parts that a build left out, such as "efa,smddp": what the build argument WITHOUT was."""

NO_REVISION = "none"
"""The revision of an image that records no commit, as one that plain `docker build` made."""

DOUBLE = "+double"
"""How the version of a part ends that a test's double stands in for, such as berth.efa="1.47.0+double"."""


def exact(found: Mapping[str, str], profile: str) -> str:
    """The tag of the build that an image's labels describe, such as build-0.1.0-cpu-1a2b3c4d5e6f."""
    return build_tag(version(found), profile, revision(found))


def version(found: Mapping[str, str]) -> str:
    """The kit's version that an image was built by; "0" where nothing says it."""
    return found.get(f"{SOURCE}.version", "0")


def revision(found: Mapping[str, str]) -> str:
    """12 digits of the commit, "-dirty" behind it with uncommitted changes; NO_REVISION without the label."""
    return found.get(f"{SOURCE}.revision", NO_REVISION)


def base_name(found: Mapping[str, str]) -> str:
    """The image that an image's build started from; empty where nothing says it."""
    return found.get(f"{SOURCE}.base.name", "")


def left_out(found: Mapping[str, str]) -> list[str]:
    """The parts that an image's build left out."""
    return [part for part in found.get(LEFT_OUT, "").split(",") if part]


def doubles(found: Mapping[str, str]) -> list[str]:
    """The parts of an image, by its labels, that are doubles, such as "efa 1.47.0+double": nothing may publish it."""
    names = sorted(name for name, version in found.items() if name.startswith("berth.") and version.endswith(DOUBLE))
    return [f"{name.removeprefix('berth.')} {found[name]}" for name in names]
