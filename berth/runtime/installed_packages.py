"""What an interpreter has installed, and what a `pip install` changed: the packages that it replaced, the requirements
that no longer hold.
"""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

_LIST = """
import importlib.metadata, json
found = importlib.metadata.distributions()
print(json.dumps([[each.metadata["Name"], each.version, each.requires or []] for each in found]))
"""


@dataclass(frozen=True, slots=True)
class Package:
    """One installed package; `requires` are its requirements, as its metadata has them."""

    version: str
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Replaced:
    """A package, by its normalised name, that had one version before and has another after."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """A package in a version that `dependant` does not take: that one needs `needs`, such as `>=1.31,<3`."""

    name: str
    version: str
    dependant: str
    dependant_version: str
    needs: str


Packages = Mapping[str, Package]
"""Normalised name → package."""


def normalised(name: str) -> str:
    """A package's name as an index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_packages(python: str) -> dict[str, Package]:
    """What that interpreter would import: of two of one name the first on its path."""
    command = [python, "-P", "-c", _LIST]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    found: dict[str, Package] = {}
    for name, version, requires in listed:
        if name and version:
            found.setdefault(normalised(name), Package(version, tuple(requires)))
    return found


def replaced_packages(before: Packages, after: Packages) -> list[Replaced]:
    """What has another version now, by name."""
    return [
        Replaced(name, before[name].version, package.version)
        for name, package in sorted(after.items())
        if name in before and before[name].version != package.version
    ]


def new_conflicts(before: Packages, after: Packages) -> list[Conflict]:
    """Requirements that do not hold now and held before, or that a new package brings."""
    known = set(_conflicts(before))
    return [each for each in _conflicts(after) if each not in known]


def dependants(packages: Packages, names: set[str]) -> set[str]:
    """The packages, by normalised name, that require one of these."""
    return {key for key, package in packages.items() if names & {name for name, _ in _requirements(package)}}


def _conflicts(packages: Packages) -> Iterator[Conflict]:
    for dependant, package in packages.items():
        for name, needs in _requirements(package):
            other = packages.get(name)
            if other is not None and not needs.contains(other.version, prereleases=True):
                yield Conflict(name, other.version, dependant, package.version, _bounds(needs))


def _bounds(needs: SpecifierSet) -> str:
    """`>=1.31.0,<3.0`: the lower bound first."""
    return ",".join(sorted(map(str, needs), key=lambda each: (each[0] != ">", each)))


def _requirements(package: Package) -> Iterator[tuple[str, SpecifierSet]]:
    """Name and bounds of what a package requires here, without extras."""
    for text in package.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:  # of a package of long ago
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield normalised(requirement.name), requirement.specifier
