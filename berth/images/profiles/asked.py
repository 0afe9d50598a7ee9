"""What `profile add` is asked for: what is wrong in it, and the tables of docker/pins.toml that it becomes. Pure."""

import datetime
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from berth.images.pins.pins import DEFAULT_PROFILE, IMAGES, KIT_TRANSFORMERS, NONE, Pins
from berth.images.pins.software_form import is_day, is_variable, parsed_version, requirement_fault

SETS_OWN = ("transformers", "accelerate", "datasets")
"""What every software set has a version of, and what `add` asks the index for where none is given."""
LONGEST_NAME = 40
"""Characters of a profile's name: of an image's tag, which has 128, version and commit take their part."""
_FOR_KIT_ONLY = ("openvino", "nncf")
"""What only the kit's own programs use, which are for transformers 5."""
FOR_SCRIPTS = ("evaluate", "scikit-learn", "pillow", "tensorboardx")
"""What every profile has for users' scripts: of a set's own day where it has one, for today's wants what came later."""
NO_NAMES = (*IMAGES, "all", "latest")
"""What a command line and a tag have another meaning for."""


@dataclass(frozen=True)
class AskedProfile:
    """A profile as it was asked for: hardware of the row `origin`, another `torch` (empty: that row's), `versions` of
    those of SETS_OWN that are given, `packages` and `constraints` as pip writes them, `environment` as NAME=VALUE.
    `day` is empty for the one that follows from the versions.
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
    """The same with all that was left open: the whole torch in `asked` (2.6.0+cpu), all `versions`, the further
    `packages`, `day`; `hardware` are keys of its row where torch is another than the origin's.
    """

    asked: AskedProfile
    versions: Mapping[str, str]
    packages: Sequence[str]
    day: str
    hardware: Mapping[str, str] = field(default_factory=dict)


def asked_faults(asked: AskedProfile, kit: Pins) -> Iterator[str]:
    """What is wrong in what was asked for, by itself and with docker/pins.toml, each without its last full stop."""
    if fault := _name_fault(asked.name, kit):
        yield fault
    if asked.origin not in kit.profiles:
        near = difflib.get_close_matches(asked.origin, kit.profiles, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else f"name one of {', '.join(kit.profiles)}"
        yield f"--from {asked.origin} is no row of docker/pins.toml ({hint})"
    for name, version in {"torch": asked.torch, **asked.versions}.items():
        if version and parsed_version(version) is None:
            yield f"--{name} {version!r} is no version: write it as {'2.6.0' if name == 'torch' else '4.46.3'}"
    for option, texts in (("--package", asked.packages), ("--constraint", asked.constraints)):
        for text in texts:
            if fault := requirement_fault(text):
                yield f"{option} {text!r} {fault}"
            elif option == "--constraint" and not Requirement(text).specifier:
                yield f"--constraint {text!r} bounds nothing: write it with the versions that may be, such as {text}<2"
    for each in asked.environment:
        if "=" not in each:
            yield f"--env {each!r} has no value: write it as NAME=VALUE"
        elif not is_variable(each.partition("=")[0]):
            yield f"--env {each!r} names no variable: write it as NAME=VALUE, NAME of letters, digits and underscores"
    yield from _given_twice(asked)
    for name in ("torch", "torchvision", *SETS_OWN):
        if any(name_of(each) == name for each in asked.packages):
            option = "--torch" if name == "torchvision" else f"--{name}"
            yield f"--package names {name}, which stands by itself: give its version by {option}"
    for each in asked.packages:
        if (name := name_of(each)) in kit.packages and not (requirement_fault(each) or pinned(each)):
            yield f"--package {each!r} leaves the version open of what every profile has: write {name}==VERSION"
    if asked.day and not is_day(asked.day):
        yield f"--day {asked.day!r} is no day: write it as 2024-12-01"
    elif asked.day > datetime.date.today().isoformat():
        yield f"--day {asked.day} is not yet: leave it out, or name a day that is over"


def _given_twice(asked: AskedProfile) -> Iterator[str]:
    """What would hold only as it was written last."""
    kinds = {
        "--package names": [name_of(each) for each in asked.packages],
        "--env sets": [each.partition("=")[0] for each in asked.environment],
    }
    for says, names in kinds.items():
        for name in dict.fromkeys(names):
            if names.count(name) > 1:
                yield f"{says} {name} {'twice' if names.count(name) == 2 else f'{names.count(name)} times'}: leave one"


def _name_fault(name: str, kit: Pins) -> str:
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) or len(name) > LONGEST_NAME:
        return (
            f"{name!r} can't be part of an image's tag: call the profile by small letters, digits and single dashes, "
            f"{LONGEST_NAME} characters at most"
        )
    if name in NO_NAMES:
        return f"{name} is a word of the commands and of images' tags: choose another name for the profile"
    if name in kit.profiles:
        return (
            f"docker/pins.toml has a profile {name} already: choose another name, or remove that one first (`python "
            f"build.py profile remove {name}`)"
        )
    if name in kit.software:
        return f"docker/pins.toml has a software set {name} already: choose another name for the profile"
    return ""


def exact_versions(asked: AskedProfile) -> dict[str, str]:
    """The versions that were asked for, by project, torch's apart."""
    pins = {name_of(each): pinned(each) for each in asked.packages}
    return {**asked.versions, **{name: version for name, version in pins.items() if version}}


def pinned(requirement: str) -> str | None:
    """The version of a requirement that names one alone, else None."""
    specifiers = list(Requirement(requirement).specifier)
    exact = len(specifiers) == 1 and specifiers[0].operator == "==" and "*" not in specifiers[0].version
    return specifiers[0].version if exact else None


def images_of(transformers: str) -> tuple[str, ...]:
    """The images that a set with this transformers is for: the kit's server is for transformers 5."""
    found = parsed_version(transformers)
    return ("train",) if found and found.major < KIT_TRANSFORMERS else IMAGES


def tables(complete: CompleteProfile, kit: Pins) -> dict[str, dict[str, Any]]:
    """What docker/pins.toml gets, table by table."""
    asked, row = complete.asked, kit.profile(complete.asked.origin)
    images = images_of(complete.versions["transformers"])
    further, overrides = _split(complete.packages, kit)
    software: dict[str, Any] = {} if images == IMAGES else {"images": list(images)}
    software |= {name: complete.versions[name] for name in SETS_OWN}
    if images != IMAGES:
        software |= dict.fromkeys((name for name in _FOR_KIT_ONLY if name not in overrides), NONE)
    software |= overrides
    lists = {"packages": further, "constraints": list(asked.constraints)}
    software |= {key: value for key, value in lists.items() if value}
    software |= {"day": complete.day} if complete.day else {}
    found = {f"software.{asked.name}": software}
    if asked.variables:
        found[f"software.{asked.name}.environment"] = asked.variables
    found[f"profiles.{asked.name}"] = {"from": asked.origin, "software": asked.name, **complete.hardware}
    found[f"profiles.{asked.name}.budget"] = {image: _budget(row.budget, image) for image in images}
    return found


def _budget(known: Mapping[str, int], image: str) -> int:
    """A quarter above the origin's until somebody has measured: `size` says what the image comes to."""
    return -(-max(known.get(image, 0) or max(known.values()), 1) * 5 // 4 // 5) * 5


def _split(packages: Sequence[str], kit: Pins) -> tuple[list[str], dict[str, str]]:
    """The packages of the set's own, and its other versions of what every profile has."""
    own = {name_of(each): each for each in packages}
    overrides = {name: pinned(each) for name, each in own.items() if name in kit.packages}
    return (
        [each for name, each in own.items() if not overrides.get(name)],
        {name: version for name, version in overrides.items() if version},
    )


def name_of(requirement: str) -> str:
    """The project that a requirement is of; the text itself of what is none."""
    try:
        return canonicalize_name(Requirement(requirement).name)
    except ValueError:
        return requirement
