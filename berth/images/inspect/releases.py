"""Finds packages with a newer release in pip's index. `newest` and `is_newer` are pure.

Locking again and comparing would find less: pinned versions stay as in docker/pins.toml, resolving takes minutes
instead of seconds, and it fails if the index misses one package.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from packaging.version import Version

from berth.common.kept import Kept, answer_key
from berth.images.locks.index_metadata import Index, Release
from berth.images.locks.locked_packages import LockedPackage, some
from berth.images.network.build_network import Network

_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Newer:
    """A package with a newer release for the images' Python."""

    locked: LockedPackage
    newest: str


def newest(releases: Iterable[Release], python: str) -> str:
    """The newest release that is final, not yanked, and for this Python; else empty."""
    return str(max((each.version for each in releases if each.is_for(python)), default=""))


def is_newer(candidate: str, version: str) -> bool:
    """Whether a release is newer than a version, ignoring its build, such as +cpu."""
    return bool(candidate) and Version(Version(candidate).public) > Version(Version(version).public)


def ask_index(
    packages: Sequence[LockedPackage], network: Network, python: str, answers: Kept | None = None
) -> tuple[list[Newer], list[str]]:
    """The packages with newer releases, and a sentence on packages that the index does not have.

    Asks pip's index and extra indexes; the newest release of all counts. answers: a cache of recent answers.
    """
    key = answer_key("index", network.index, python)
    found: dict[str, str] = (answers.load(key) if answers else None) or {}
    names = sorted({package.name for package in packages} - set(found))
    refusals: dict[str, str] = {}
    with Index(network, _AT_ONCE) as index, ThreadPoolExecutor(_AT_ONCE) as pool:
        for name, (releases, refusal) in zip(names, pool.map(index.look_up, names), strict=True):
            if release := newest(releases, python):
                found[name] = release
            else:
                refusals[name] = refusal or "no release for this Python"
    if answers and names:
        answers.store(key, found)
    newer = [
        Newer(package, found[package.name])
        for package in packages
        if package.name in found and is_newer(found[package.name], package.version)
    ]
    if not refusals:
        return newer, []
    reason = next(iter(refusals.values()))
    return newer, [
        f"Whether {some(refusals)} has a newer release is unknown: {index.name} answers: {reason}; "
        "check pip's index-url, and that it answers with JSON (PEP 691)."
    ]
