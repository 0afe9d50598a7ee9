"""Completes a request of `profile add`: uv resolves the versions that were not given. If it can't, the error suggests
versions that work.
"""

import datetime
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from berth.common.errors import UserError, refuse
from berth.contract import gpu_hosts
from berth.images.locks.lock_text import locked_names
from berth.images.locks.locks import LOCKS, cuda_parts, torch_locks
from berth.images.locks.uv import NoSolution, as_of, compile_requirements
from berth.images.network.build_network import Network
from berth.images.pins.pins import NONE, Pins, Profile
from berth.images.profiles.request import (
    FOR_SCRIPTS,
    SET_PACKAGES,
    CompleteProfile,
    ProfileRequest,
    exact_versions,
    pinned,
    project_name,
    request_errors,
)
from berth.images.profiles.unavailable import unavailable

MARGIN_DAYS = 30
"""All other versions are resolved as of this many days after the newest requested one: releases soon after it were made
for it, and much later ones may have dropped what it calls.
"""
WITH_NUMPY_2 = Version("2.4")
"""The first torch whose wheels are all built against numpy 2."""


@dataclass(frozen=True)
class Resolved:
    """The version that uv chose, and the day of its upload; empty if the index does not list it."""

    version: str
    day: str


@dataclass(frozen=True)
class Resolver:
    """Asks uv for compatible versions. profile: has the requested torch. undated: packages that ignore `day`."""

    profile: Profile
    folders: Sequence[Path]
    undated: Sequence[str] = ()

    def resolve(
        self, requirements: Sequence[str], constraints: Sequence[str] = (), day: str = "", *, alone: bool = False
    ) -> dict[str, Resolved]:
        """The versions that uv chooses, by name; `alone`: without the dependencies of the requirements."""
        words = [*as_of(day, self.undated), "--format", "pylock.toml", "--constraint", "bounds.txt"]
        words += ["--no-deps"] if alone else []
        files = {"bounds.txt": "".join(f"{each}\n" for each in constraints)}
        lock = compile_requirements(requirements, self.profile, self.folders, words, files, "pylock.toml")
        found = {}
        for package in tomllib.loads(lock).get("packages", []):
            uploads = [f"{file['upload-time']:%Y-%m-%d}" for file in package["wheels"] if "upload-time" in file]
            found[package["name"]] = Resolved(package["version"], min(uploads, default=""))
        return found


def complete(
    request: ProfileRequest, pins: Pins, network: Network, step: Callable[[str], None] = lambda done: None
) -> CompleteProfile:
    """The completed profile; UserError says what is impossible, and which versions would work.

    step: called with a description of each step.
    """
    refuse(f"{fault}." for fault in request_errors(request, pins))
    profile = pins.profile(request.origin)
    request = replace(request, torch=_full_torch_version(request.torch, profile))
    resolver = Resolver(_with_torch(request, profile), network.index.folders)
    step(f"looking for {request.name}'s versions")
    found = _find(request, pins, resolver, network)
    for line in _first_releases(resolver, found, exact_versions(request)):
        step(line)
    day = _day(request, found, step)
    hardware: dict[str, str] = {}
    undated = [name for lock in torch_locks(profile) for name in locked_names((LOCKS / lock).read_text())]
    if request.torch != profile.torch:
        step(f"looking for what torch {request.torch} is built for")
        of_torch = resolver.resolve([f"torch=={request.torch}"])
        undated = [*of_torch]
        hardware = _hardware(profile, request.torch, {name: each.version for name, each in of_torch.items()})
        if "torchvision" in profile.packages:
            fitting = resolver.resolve([f"torch=={request.torch}", "torchvision"])
            hardware["torchvision"] = fitting["torchvision"].version
    step("looking for versions that go together" + (f", as of {day}" if day else ""))
    requirements = _requirements(request, pins)
    together = _together(replace(resolver, undated=("torch", *undated)), requirements, request, day)
    numpy = together["numpy"].version if "numpy" in together else "1"
    if Version(request.torch) < WITH_NUMPY_2 and Version(numpy).major > 1:
        raise UserError(
            f"torch {request.torch} is built against numpy 1, and numpy would be {numpy}: add --constraint 'numpy<2'."
        )
    packages = [
        each if Requirement(each).specifier else f"{project_name(each)}=={together[project_name(each)].version}"
        for each in request.packages
    ]
    # Packages for scripts, if they must be older than the pinned versions to fit the rest.
    packages += [
        f"{name}=={together[name].version}"
        for name in FOR_SCRIPTS
        if requirements.get(name) == name and Version(together[name].version) < Version(pins.packages[name])
    ]
    versions = {name: together[name].version for name in SET_PACKAGES}
    return CompleteProfile(request, versions, packages, day, hardware)


def _find(request: ProfileRequest, pins: Pins, resolver: Resolver, network: Network) -> dict[str, Resolved]:
    """Resolves each requested package alone; UserError names all that can't be installed."""
    profile = pins.profile(request.origin)
    wanted = [f"torch=={request.torch}"] if request.torch != profile.torch else []
    wanted += [f"{name}=={version}" for name, version in request.versions.items()]
    wanted += [*request.packages, *request.constraints]
    try:
        return resolver.resolve(wanted, alone=True)
    except UserError as error:
        if isinstance(error, NoSolution):
            refuse(unavailable(wanted, pins, profile.python, network))
        wheels = {path.name.split("-")[1] for folder in resolver.folders for path in folder.glob("torch-*.whl")}
        folders = f" Pip's folders have torch {', '.join(sorted(wheels))}." if "torch" in str(error) and wheels else ""
        raise UserError(f"The versions of {request.name} were not found: {error}{folders}") from None


def _day(request: ProfileRequest, found: Mapping[str, Resolved], step: Callable[[str], None]) -> str:
    """The day as of which other versions are resolved, empty for today; UserError if a requested version is newer."""
    exact = exact_versions(request)
    uploads = {name: found[name].day for name in exact if name in found}
    if request.day:
        refuse(
            f"{name} {exact[name]} came out on {came}, after --day {request.day}: give --day {came} or a later one, or "
            "choose an older version."
            for name, came in uploads.items()
            if came > request.day
        )
        return request.day
    newest = max(uploads, key=lambda name: uploads[name], default="")
    if not newest or not uploads[newest]:
        return ""
    day = datetime.date.fromisoformat(uploads[newest]) + datetime.timedelta(days=MARGIN_DAYS)
    if day >= datetime.date.today():
        return ""
    step(f"all other versions are as of {day}, {MARGIN_DAYS} days after {newest} {exact[newest]}; --day changes it")
    return day.isoformat()


def _requirements(request: ProfileRequest, pins: Pins) -> dict[str, str]:
    """All requirements that are resolved together, by name. transformers gets its extra `torch`, which bounds the torch
    versions that it supports.
    """
    found = {name: name for name in FOR_SCRIPTS if pins.packages.get(name, NONE) != NONE}
    found |= {name: f"{name}=={request.versions[name]}" if name in request.versions else name for name in SET_PACKAGES}
    found["transformers"] = found["transformers"].replace("transformers", "transformers[torch]")
    return {"torch": f"torch=={request.torch}", **found, **{project_name(each): each for each in request.packages}}


def _together(
    resolver: Resolver, requirements: Mapping[str, str], request: ProfileRequest, day: str
) -> dict[str, Resolved]:
    """Resolves all requirements together. UserError names single changes that would each make it possible."""
    try:
        return resolver.resolve([*requirements.values()], request.constraints, day)
    except NoSolution as error:
        others: list[str] = []
        ways: list[str] = []
        for name, text in requirements.items():
            if pinned(text) and not (name == "torch" and resolver.profile.cuda):  # a newer torch may need another CUDA
                with suppress(UserError):
                    other = resolver.resolve(
                        [*{**requirements, name: _without_version(text)}.values()], request.constraints, day
                    )
                    others.append(f"{name} {other[name].version}")
        for text in request.constraints:
            with suppress(UserError):
                rest = [each for each in request.constraints if each != text]
                resolver.resolve([*requirements.values()], rest, day)
                ways.append(f"leave out --constraint '{text}'")
        if day:
            with suppress(UserError):
                resolver.resolve([*requirements.values()], request.constraints)
                ways.append("give a later --day")
        if others:
            verb = "fits" if len(others) == 1 else "fit"
            ways.insert(0, f"choose {' or '.join(others)}, the newest that {verb} the rest")
        remedy = ", or ".join(ways) or "choose other versions"
        raise UserError(f"{request.name}'s versions are incompatible: {error} To fix it, {remedy}.") from None


def _without_version(text: str) -> str:
    """The requirement without its version."""
    requirement = Requirement(text)
    requirement.specifier = SpecifierSet()
    return str(requirement)


def _first_releases(resolver: Resolver, found: Mapping[str, Resolved], exact: Mapping[str, str]) -> list[str]:
    """Hints for versions such as `4.46`: it is the first release of that line, though users often mean the newest."""
    lines = {name: text for name, text in exact.items() if text.count(".") == 1 and name in found}
    newest = resolver.resolve([f"{name}=={text}.*" for name, text in lines.items()], alone=True) if lines else {}
    return [
        f"{name} {text} is the first release of that line; the newest is {newest[name].version}"
        for name, text in lines.items()
        if newest[name].version != found[name].version
    ]


def _full_torch_version(torch: str, profile: Profile) -> str:
    """The version with the profile's build suffix, such as +cpu, unless it has one; the profile's torch if empty."""
    if not torch:
        return profile.torch
    build = profile.torch.partition("+")[2]
    return f"{torch}+{build}" if build and "+" not in torch else torch


def _with_torch(request: ProfileRequest, profile: Profile) -> Profile:
    """The profile with the requested name and torch, and any torchvision if it has one."""
    vision = {"torchvision": "*"} if "torchvision" in profile.packages else {}
    return replace(profile, name=request.name, packages={**profile.packages, "torch": request.torch, **vision})


def _hardware(profile: Profile, torch: str, versions: Mapping[str, str]) -> dict[str, str]:
    """The hardware keys of a profile whose torch differs from its origin's, from the dependencies of this torch.
    UserError for a CUDA that the origin's drivers can't run.
    """
    found = {"torch": torch}
    if profile.cuda:
        parts = cuda_parts(versions)
        cuda, drivers = gpu_hosts.parse(parts["cuda"]), gpu_hosts.parse(profile.cuda["cuda"])
        if cuda[0] > drivers[0]:
            raise UserError(
                f"torch {torch} is built for CUDA {parts['cuda']}, which needs driver {gpu_hosts.needed_driver(cuda)} "
                f"or newer; {profile.name} is for driver {gpu_hosts.needed_driver(drivers)} and newer: choose an older "
                f"torch, or --from a profile for CUDA {cuda[0]}."
            )
        found |= parts
    # Wheels that are built against another torch don't work.
    return found | {part: NONE for part, file in profile.files.items() if file.torch and file.torch != torch}
