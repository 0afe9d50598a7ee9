"""Explains with the package index why a requested package can't be installed; called only if uv fails."""

import difflib
from collections.abc import Iterable, Iterator, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from berth.images.locks.index_metadata import Index, Release
from berth.images.locks.lock_text import locked_names
from berth.images.locks.locks import LOCKS
from berth.images.network.build_network import Network
from berth.images.pins.pins import Pins
from berth.images.profiles.request import SET_PACKAGES, pinned

PYTHONS = tuple(f"3.{minor}" for minor in range(6, 15))


def unavailable(requirements: Iterable[str], pins: Pins, python: str, network: Network) -> Iterator[str]:
    """A sentence for each requirement that no release of its project satisfies."""
    with Index(network) as index:
        for text in requirements:
            requirement = Requirement(text)
            releases, reason = index.look_up(requirement.name)
            if not releases and all(each.startswith("404 ") for each in reason.split("; ")):
                yield _unknown_package(requirement.name, pins, index.name)
            elif releases and (fault := release_fault(requirement, releases, python)):
                yield fault


def release_fault(requirement: Requirement, releases: Sequence[Release], python: str) -> str:
    """Why no release satisfies a requirement, and the nearest releases; empty if one does."""
    name, version = requirement.name, pinned(str(requirement)) or ""
    # For a build of torch, such as +cpu, the index lists the plain version.
    public = version.partition("+")[0]
    inside = [
        each
        for each in releases
        if (each.version == Version(public) if public else requirement.specifier.contains(each.version))
    ]
    if any(each.has_wheel(python) for each in inside):
        return ""
    usable = [each.version for each in releases if each.is_for(python) and each.has_wheel(python)]
    near = nearest(public, usable)
    remedy = f"the nearest that can be installed {'are' if len(near) > 1 else 'is'} {' and '.join(near)}"
    if not usable:
        remedy = "no release of it has one, so put a wheel of it on an index in pip's extra-index-url"
    if not inside:
        return f"{name}{requirement.specifier} was never released: {remedy}."
    return f"{name} {version or inside[0].version} {_wheels_instead(inside[0], python)}: {remedy}."


def _wheels_instead(release: Release, python: str) -> str:
    """What a release without a wheel for this Python has instead."""
    has = [each for each in PYTHONS if release.has_wheel(each)]
    if not has:
        return f"has no wheel for Python {python}, and images don't build from source"
    pythons = " to ".join(dict.fromkeys((has[0], has[-1])))
    return f"has wheels for Python {pythons} only, but the base has Python {python}"


def nearest(version: str, released: Sequence[Version]) -> list[str]:
    """The released versions just below and above `version`; the newest if it is empty."""
    final = sorted(released)
    below = [each for each in final if not version or each < Version(version)]
    above = [each for each in final if version and each > Version(version)]
    return [str(each) for each in (*below[-1:], *above[:1])]


def _unknown_package(project: str, pins: Pins, index: str) -> str:
    """An error that the index has no such project, with the name that was probably meant."""
    locked = (name for lock in LOCKS.rglob("*.txt") for name in locked_names(lock.read_text()))
    name, error = canonicalize_name(project), f"The package index {index} has no package {project}"
    near = difflib.get_close_matches(name, {*pins.packages, *SET_PACKAGES, *locked}, n=1, cutoff=0.75)
    if near == [name]:
        return f"{error}: check whether pip's index-url, or the variable PIP_INDEX_URL, names the right one."
    return f"{error}: did you mean {near[0]}?" if near else f"{error}: check the spelling."
