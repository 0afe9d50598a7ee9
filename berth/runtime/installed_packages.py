"""The installed packages of an interpreter, and the changes of a `pip install`: replaced packages and new conflicts."""

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
    """One installed package; `requires` are the requirements in its metadata."""

    version: str
    requires: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Replaced:
    """A package, by its normalised name, and its versions before and after."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """A package whose version does not meet `needs`, such as `>=1.31,<3`, of the package `dependant`."""

    name: str
    version: str
    dependant: str
    dependant_version: str
    needs: str


Packages = Mapping[str, Package]
"""Normalised name → package."""


def normalised(name: str) -> str:
    """A package's name as package indexes normalise it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed_packages(python: str) -> dict[str, Package]:
    """The packages that the interpreter would import: if a name occurs twice, the first on its path."""
    command = [python, "-P", "-c", _LIST]
    listed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    packages: dict[str, Package] = {}
    for name, version, requires in listed:
        if name and version:
            packages.setdefault(normalised(name), Package(version, tuple(requires)))
    return packages


def replaced_packages(before: Packages, after: Packages) -> list[Replaced]:
    """The packages whose version changed, sorted by name."""
    return [
        Replaced(name, before[name].version, package.version)
        for name, package in sorted(after.items())
        if name in before and before[name].version != package.version
    ]


def new_conflicts(before: Packages, after: Packages) -> list[Conflict]:
    """Requirements that are violated now and were not violated before."""
    known = set(_conflicts(before))
    return [each for each in _conflicts(after) if each not in known]


def dependants(packages: Packages, names: set[str]) -> set[str]:
    """The normalised names of packages that require one of `names`."""
    return {key for key, package in packages.items() if names & {name for name, _ in _requirements(package)}}


def _conflicts(packages: Packages) -> Iterator[Conflict]:
    for dependant, package in packages.items():
        for name, needs in _requirements(package):
            other = packages.get(name)
            if other is not None and not needs.contains(other.version, prereleases=True):
                yield Conflict(name, other.version, dependant, package.version, _bounds(needs))


def _bounds(needs: SpecifierSet) -> str:
    """`>=1.31.0,<3.0`: lower bounds first."""
    return ",".join(sorted(map(str, needs), key=lambda each: (each[0] != ">", each)))


def _requirements(package: Package) -> Iterator[tuple[str, SpecifierSet]]:
    """Name and bounds of a package's requirements on this platform, without extras."""
    for text in package.requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:  # in very old packages
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield normalised(requirement.name), requirement.specifier
