"""The request of `profile add`: its errors, and the tables of docker/pins.toml that it becomes. Pure."""

import datetime
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from berth.images.pins.pins import DEFAULT_PROFILE, FIRST_TRANSFORMERS, IMAGES, NONE, Pins
from berth.images.pins.software_form import is_day, is_variable, parsed_version, requirement_fault

SET_PACKAGES = ("transformers", "accelerate", "datasets")
"""Every software set has a version of these; `add` asks the index for those that are not given."""
LONGEST_NAME = 40
"""Most characters of a profile's name: an image's tag has at most 128, with version and commit."""
_FOR_BERTH_ONLY = ("openvino", "nncf")
"""Only berth's own programs use these, and need transformers 5."""
FOR_SCRIPTS = ("evaluate", "scikit-learn", "pillow", "tensorboardx")
"""Packages for users' scripts in every profile. A set with a `day` gets that day's versions: newer ones may not fit."""
RESERVED_NAMES = (*IMAGES, "all", "latest")
"""Words with another meaning in command lines or tags."""


@dataclass(frozen=True)
class ProfileRequest:
    """The options of `profile add`. origin: the profile whose hardware it uses. torch: empty for the origin's.
    versions: of SET_PACKAGES, as far as given. packages, constraints: requirements in pip's form. environment:
    NAME=VALUE. day: empty to derive it from the versions.
    """

    name: str
    origin: str = DEFAULT_PROFILE
    torch: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    packages: Sequence[str] = ()
    constraints: Sequence[str] = ()
    environment: Sequence[str] = ()
    day: str = ""

    @property
    def variables(self) -> dict[str, str]:
        return {name: value for name, _, value in (each.partition("=") for each in self.environment)}


@dataclass(frozen=True)
class CompleteProfile:
    """A completed request. request: with the full torch version (2.6.0+cpu). versions: of all SET_PACKAGES. packages:
    the further ones, with versions. hardware: the profile's own keys if its torch differs from the origin's.
    """

    request: ProfileRequest
    versions: Mapping[str, str]
    packages: Sequence[str]
    day: str
    hardware: Mapping[str, str] = field(default_factory=dict)


def request_errors(request: ProfileRequest, pins: Pins) -> Iterator[str]:
    """Errors of a request, by itself and against docker/pins.toml; each without a full stop at the end."""
    if fault := _name_error(request.name, pins):
        yield fault
    if request.origin not in pins.profiles:
        near = difflib.get_close_matches(request.origin, pins.profiles, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else f"name one of {', '.join(pins.profiles)}"
        yield f"--from {request.origin} is not a profile of docker/pins.toml ({hint})"
    for name, version in {"torch": request.torch, **request.versions}.items():
        if version and parsed_version(version) is None:
            yield f"--{name} {version!r} is not a version: write it as {'2.6.0' if name == 'torch' else '4.46.3'}"
    for option, texts in (("--package", request.packages), ("--constraint", request.constraints)):
        for text in texts:
            if fault := requirement_fault(text):
                yield f"{option} {text!r} {fault}"
            elif option == "--constraint" and not Requirement(text).specifier:
                yield f"--constraint {text!r} has no bound: write it with the allowed versions, such as {text}<2"
    for each in request.environment:
        if "=" not in each:
            yield f"--env {each!r} has no value: write it as NAME=VALUE"
        elif not is_variable(each.partition("=")[0]):
            yield (
                f"--env {each!r} does not start with a variable's name: write it as NAME=VALUE, NAME of letters, "
                "digits and underscores"
            )
    yield from _duplicates(request)
    for name in ("torch", "torchvision", *SET_PACKAGES):
        if any(project_name(each) == name for each in request.packages):
            option = "--torch" if name == "torchvision" else f"--{name}"
            yield f"--package names {name}: use {option} instead"
    for each in request.packages:
        if (name := project_name(each)) in pins.packages and not (requirement_fault(each) or pinned(each)):
            yield f"--package {each!r} has no exact version, but every profile has {name}: write {name}==VERSION"
    if request.day and not is_day(request.day):
        yield f"--day {request.day!r} is not a date: write it as 2024-12-01"
    elif request.day > datetime.date.today().isoformat():
        yield f"--day {request.day} is in the future: leave it out, or give a past day"


def _duplicates(request: ProfileRequest) -> Iterator[str]:
    """Packages and variables that were given more than once."""
    kinds = {
        "--package names": [project_name(each) for each in request.packages],
        "--env sets": [each.partition("=")[0] for each in request.environment],
    }
    for option, names in kinds.items():
        for name in dict.fromkeys(names):
            if (times := names.count(name)) > 1:
                yield f"{option} {name} {'twice' if times == 2 else f'{times} times'}: give it once"


def _name_error(name: str, pins: Pins) -> str:
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) or len(name) > LONGEST_NAME:
        return (
            f"{name!r} can't be part of an image's tag: use lower-case letters, digits and single dashes, at most "
            f"{LONGEST_NAME} characters"
        )
    if name in RESERVED_NAMES:
        return f"{name} is a reserved word of commands and tags: choose another name for the profile"
    if name in pins.profiles:
        return (
            f"docker/pins.toml has a profile {name} already: choose another name, or remove that one first (`python "
            f"build.py profile remove {name}`)"
        )
    if name in pins.software:
        return f"docker/pins.toml has a software set {name} already: choose another name for the profile"
    return ""


def exact_versions(request: ProfileRequest) -> dict[str, str]:
    """The exact versions in a request, by project, without torch's."""
    pins = {project_name(each): pinned(each) for each in request.packages}
    return {**request.versions, **{name: version for name, version in pins.items() if version}}


def pinned(requirement: str) -> str | None:
    """The version of a requirement with a single `==` version, else None."""
    specifiers = list(Requirement(requirement).specifier)
    exact = len(specifiers) == 1 and specifiers[0].operator == "==" and "*" not in specifiers[0].version
    return specifiers[0].version if exact else None


def images_for(transformers: str) -> tuple[str, ...]:
    """The images of a set with this transformers: berth's server needs transformers 5."""
    found = parsed_version(transformers)
    return ("train",) if found and found.major < FIRST_TRANSFORMERS else IMAGES


def tables(complete: CompleteProfile, pins: Pins) -> dict[str, dict[str, Any]]:
    """The tables to add to docker/pins.toml."""
    request, origin = complete.request, pins.profile(complete.request.origin)
    images = images_for(complete.versions["transformers"])
    packages, overrides = _split(complete.packages, pins)
    software: dict[str, Any] = {} if images == IMAGES else {"images": list(images)}
    software |= {name: complete.versions[name] for name in SET_PACKAGES}
    if images != IMAGES:
        software |= dict.fromkeys((name for name in _FOR_BERTH_ONLY if name not in overrides), NONE)
    software |= overrides
    lists = {"packages": packages, "constraints": list(request.constraints)}
    software |= {key: value for key, value in lists.items() if value}
    software |= {"day": complete.day} if complete.day else {}
    all_tables = {f"software.{request.name}": software}
    if request.variables:
        all_tables[f"software.{request.name}.environment"] = request.variables
    all_tables[f"profiles.{request.name}"] = {"from": request.origin, "software": request.name, **complete.hardware}
    all_tables[f"profiles.{request.name}.budget"] = {image: _budget(origin.budget, image) for image in images}
    return all_tables


def _budget(known: Mapping[str, int], image: str) -> int:
    """The origin's budget plus a quarter, rounded up to 5 MB; the user lowers it after measuring with `size`."""
    return -(-max(known.get(image, 0) or max(known.values()), 1) * 5 // 4 // 5) * 5


def _split(packages: Sequence[str], pins: Pins) -> tuple[list[str], dict[str, str]]:
    """The set's further packages, and its own versions of packages that every profile has."""
    own = {project_name(each): each for each in packages}
    overrides = {name: pinned(each) for name, each in own.items() if name in pins.packages}
    return (
        [each for name, each in own.items() if not overrides.get(name)],
        {name: version for name, version in overrides.items() if version},
    )


def project_name(requirement: str) -> str:
    """The project of a requirement; the text itself if it is not a requirement."""
    try:
        return canonicalize_name(Requirement(requirement).name)
    except ValueError:
        return requirement
