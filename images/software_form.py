"""The form of a software set in docker/pins.toml, and what is wrong in one: a part of `pins_form`."""

import difflib
import re
from collections.abc import Collection, Iterator
from datetime import date

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict

from berth.images.pins import IMAGES, KIT_TRANSFORMERS, NONE

MAY_BE_NONE = ("openvino", "nncf", "evaluate", "scikit-learn", "pillow", "tensorboardx")
"""The packages that a software set may say "none" to: a training image does without them."""


class Table(BaseModel):
    """A table of pins.toml: no key that is not named here, no text where a number belongs."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SoftwareTable(Table):
    """A software set; what is not named here is a package of [packages] in another version."""

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
        """Its own versions of [packages]."""
        return dict(self.__pydantic_extra__)

    @property
    def versions(self) -> dict[str, str]:
        """Every version that it names, by package."""
        return {name: getattr(self, name) for name in ("transformers", "accelerate", "datasets")} | self.others


def software_faults(table: str, software: SoftwareTable, known: Collection[str]) -> Iterator[str]:
    """What a set says that can't be; known: the packages of [packages]."""
    for name, version in software.versions.items():
        if name in software.others and name not in known:
            near = difflib.get_close_matches(name, [*SoftwareTable.model_fields, *known], n=1)
            hint = (
                f"did you mean {near[0]}?" if near else 'a package of your own goes into `packages`, as "NAME==VERSION"'
            )
            torch = "torch and torchvision stand in the row of a profile"
            yield f"{name} of {table} is unknown ({torch if name in ('torch', 'torchvision') else hint})"
        elif version == NONE and name not in MAY_BE_NONE:
            yield f'{name} of {table} is "{NONE}", which only {", ".join(MAY_BE_NONE)} may be: write a version'
    if not software.images or set(software.images) - set(IMAGES):
        yield f"images of {table} are not some of {', '.join(IMAGES)}"
    for name, version in software.versions.items():
        if version != NONE and _version(version) is None:
            yield f"{name} of {table} is {version!r}, and no version: write it as 4.46.3"
    found = _version(software.transformers)
    if "serve" in software.images and found and found.major < KIT_TRANSFORMERS:
        yield (
            f"{table} has transformers {software.transformers}, and serve is for {KIT_TRANSFORMERS} and newer: write "
            'images = ["train"]; images of other profiles serve its models'
        )
    for text in (*software.packages, *software.constraints):
        if _requirement(text) is None:
            yield f'{text!r} of {table} is no requirement: write it as pip takes it, such as "peft==0.15.2"'
    for text in software.packages:
        asked = _requirement(text)
        name = canonicalize_name(asked.name) if asked else ""
        if name in (*known, "torch", "torchvision", "transformers", "accelerate", "datasets"):
            yield f'packages of {table} has {name}, which stands by itself: write {name} = "VERSION"'
    for text in software.debian:
        if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", text):
            yield f'{text!r} of {table} is no package of Debian: write its name alone, such as "git"'
    if software.day and not _is_day(software.day):
        yield f"day of {table} is {software.day!r}, and no day: write it as 2024-12-01"
    for name in software.environment:
        if not re.fullmatch(r"[A-Za-z_]\w*", name, flags=re.ASCII):
            yield f"{name!r} of the environment of {table} is no variable's name"


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _requirement(text: str) -> Requirement | None:
    """A requirement of an index; None for what is none, or names a file."""
    try:
        found = Requirement(text)
    except InvalidRequirement:
        return None
    return None if found.url else found
