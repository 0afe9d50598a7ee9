"""Validates software sets of docker/pins.toml, for `pins_form`."""

import difflib
import re
from collections.abc import Collection, Iterator
from datetime import date

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict

from berth.images.pins.pins import FIRST_TRANSFORMERS, IMAGES, NONE

MAY_BE_NONE = ("openvino", "nncf", "evaluate", "scikit-learn", "pillow", "tensorboardx")
"""The packages that a software set may set to "none": a training image works without them."""


class Table(BaseModel):
    """A table of pins.toml, without unknown keys or type conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SoftwareTable(Table):
    """A software set; other keys are packages of [packages] in another version."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str]

    transformers: str
    accelerate: str
    datasets: str
    images: list[str] = list(IMAGES)
    packages: list[str] = []
    constraints: list[str] = []
    debian: list[str] = []
    day: str = ""
    environment: dict[str, str] = {}

    @property
    def others(self) -> dict[str, str]:
        """Its own versions of packages in [packages]."""
        return dict(self.__pydantic_extra__)

    @property
    def versions(self) -> dict[str, str]:
        """Every version that it names, by package."""
        return {name: getattr(self, name) for name in ("transformers", "accelerate", "datasets")} | self.others


def software_faults(table: str, software: SoftwareTable, known: Collection[str]) -> Iterator[str]:
    """Errors of a software set; known: the packages of [packages]."""
    for name, version in software.versions.items():
        if name in software.others and name not in known:
            near = difflib.get_close_matches(name, [*SoftwareTable.model_fields, *known], n=1)
            hint = (
                f"did you mean {near[0]}?" if near else 'a package of your own goes into `packages`, as "NAME==VERSION"'
            )
            torch = "torch and torchvision belong to a profile"
            yield f"{name} of {table} is unknown ({torch if name in ('torch', 'torchvision') else hint})"
        elif version == NONE and name not in MAY_BE_NONE:
            yield f'{name} of {table} is "{NONE}", which only {", ".join(MAY_BE_NONE)} may be: write a version'
    if not software.images or set(software.images) - set(IMAGES):
        yield f"images of {table} are not some of {', '.join(IMAGES)}"
    for name, version in software.versions.items():
        if version != NONE and parsed_version(version) is None:
            yield f"{name} of {table} is {version!r}, which is not a version: write it as 4.46.3"
    transformers = parsed_version(software.transformers)
    if "serve" in software.images and transformers and transformers.major < FIRST_TRANSFORMERS:
        yield (
            f"{table} has transformers {software.transformers}, but serve needs {FIRST_TRANSFORMERS} or newer: write "
            'images = ["train"]; images of other profiles serve its models'
        )
    for text in (*software.packages, *software.constraints):
        if fault := requirement_fault(text):
            yield f"{text!r} of {table} {fault}"
    for text in software.packages:
        name = "" if requirement_fault(text) else canonicalize_name(Requirement(text).name)
        if name in (*known, "torch", "torchvision", "transformers", "accelerate", "datasets"):
            yield f'packages of {table} has {name}, which has its own key: write {name} = "VERSION"'
    for text in software.debian:
        if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", text):
            yield f'{text!r} of {table} is not a Debian package name: write a name such as "git"'
    if software.day and not is_day(software.day):
        yield f"day of {table} is {software.day!r}, which is not a date: write it as 2024-12-01"
    for name in software.environment:
        if not is_variable(name):
            yield f"{name!r} of the environment of {table} is not a variable name"


def requirement_fault(text: str) -> str:
    """What is wrong with a requirement, to follow its text in a sentence; empty if an index can have it."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return 'is not a requirement: write it as for pip, such as "peft==0.15.2"'
    if not requirement.url:
        return ""
    return (
        f"is a URL, and locks take files from package indexes only: write "
        f'"{requirement.name}==VERSION" of an index, such as your own pip extra-index-url, or install it in your own '
        "Dockerfile that begins with `FROM` and the image"
    )


def is_variable(name: str) -> bool:
    """Whether it is a valid name of an environment variable."""
    return bool(re.fullmatch(r"[A-Za-z_]\w*", name, flags=re.ASCII))


def is_day(text: str) -> bool:
    """Whether it is a date such as 2024-12-01."""
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def parsed_version(text: str) -> Version | None:
    """The version, or None if the text is not a version."""
    try:
        return Version(text)
    except InvalidVersion:
        return None
