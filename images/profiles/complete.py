"""What `profile add` asks the package index: whether the versions were released and go together, the newest where none
is named, the day, and where torch comes from.
"""

import datetime
import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import requests
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from berth.common.errors import Problems, UserError, refuse
from berth.common.http import in_few_words, innermost
from berth.images import compatibility_table
from berth.images.build_network import Network
from berth.images.combinations import Known, cuda_parts_of, faults, nearest, torchvision_of
from berth.images.index_metadata import Index, UnknownProject
from berth.images.known_releases import ask, ask_newest
from berth.images.lock_text import locked_names
from berth.images.locks import LOCKS
from berth.images.pins import NONE, Pins, Profile
from berth.images.profiles.asked import (
    FOR_SCRIPTS,
    SETS_OWN,
    AskedProfile,
    CompleteProfile,
    asked_faults,
    bounds_of,
    combination,
    exact_versions,
    open_packages,
)
from berth.images.profiles.day import MARGIN_DAYS, day_faults, day_of, newest_of

_TIMEOUT_S = 20


def complete(
    asked: AskedProfile, kit: Pins, network: Network, step: Callable[[str], None] = lambda done: None
) -> CompleteProfile:
    """The profile with all that was left open; UserError with all that can't be, a sentence each.

    step: called with what is being done.
    """
    refuse(f"{fault}." for fault in asked_faults(asked, kit))
    row = kit.profile(asked.origin)
    torch = _whole_torch(asked.torch, row)
    asked = replace(asked, torch=torch)
    with Index(network) as index:
        step(f"asking the package index for {asked.name}'s versions")
        exact, bounds = exact_versions(asked, kit), bounds_of(asked)
        bounded: list[str] = [canonicalize_name(Requirement(each).name) for each in bounds]
        asking = {**dict.fromkeys(bounded, ""), "torch": torch, **exact}
        known = _ask_all(index, compatibility_table.load(), asking, kit)
        for line in _read_as(index, exact):
            step(line)
        newest, of = newest_of(exact, known)
        day = asked.day or day_of(newest, datetime.date.today())
        if day and not asked.day:
            step(f"all else is as of {day}, {MARGIN_DAYS} days after {of} {exact[of]}; --day changes it")
        wanted = combination(asked, kit, exact, day)
        late = day_faults(exact, [each for each in bounds if not _is_undated(each, kit)], day, known)
        problems = Problems()
        with problems.noted():
            refuse([*faults(wanted, known), *late, *_wheel_faults(index, exact, kit, row.python)])
        hardware: dict[str, str] = {}
        if torch != row.torch and known.spelt("torch", torch):
            with problems.noted():
                hardware = _hardware(row, torch, known)
                check_torch(torch, row.torch_index, network)
        problems.refuse()
        versions = {name: known.spelt(name, version) or version for name, version in exact.items()}
        still_open = dict.fromkeys(open_packages(asked))
        known, of_day = _too_late(index, known, row, day, kit)
        for name in [name for name in {**still_open, **dict.fromkeys([*SETS_OWN, *of_day])} if name not in exact]:
            step(f"asking for the newest {name} that fits" + (f", as of {day}" if day else ""))
            versions[name], known = ask_newest(index, known, name, combination(asked, kit, versions, day))
        refuse(faults(combination(asked, kit, versions, day), known))
        refuse(_wheel_faults(index, {name: versions[name] for name in still_open}, kit, row.python))
    packages = [f"{each}=={versions[each]}" if each in still_open else each for each in map(_spelt, asked.packages)]
    packages += [f"{each}=={versions[each]}" for each in of_day if each not in {**still_open, **exact}]
    return CompleteProfile(asked, torch, versions, packages, day, hardware)


def _wheel_faults(index: Index, versions: Mapping[str, str], kit: Pins, python: str) -> list[str]:
    """Which of these come as source only, and so would have to be built: a layer installs wheels, whose hashes a lock
    has.
    """
    built = {name for names in kit.source_only.values() for name in names}
    found = []
    for name, version in versions.items():
        releases = [] if name in built else index.releases(name)
        asked = [each for each in releases if _is(each.version, version)]
        # For which Python it has wheels is another's to say.
        if asked and not any(file.is_wheel for file in asked[0].files):
            newest = next(
                (str(each.version) for each in releases if each.is_for(python) and each.has_wheel(python)), ""
            )
            remedy = (
                f"choose another, of which {newest} is the newest that has one" if newest else "no release of it has"
            )
            further = "" if newest else ", so put a wheel of it onto an index of pip's extra-index-url"
            found.append(
                f"{name} {version} has no wheel for Python {python}, and an image builds none: {remedy}{further}."
            )
    return found


def _read_as(index: Index, versions: Mapping[str, str]) -> list[str]:
    """What `4.46` is, which many write for the newest of a line and which is its first release."""
    found = []
    for name, text in versions.items():
        line = tuple(map(int, text.split("."))) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else ()
        releases = index.releases(name) if line else []
        of_line = [each.version for each in releases if each.version.release[: len(line)] == line]
        if final := [each for each in of_line if not each.is_prerelease and each > Version(text)]:
            found.append(f"{name} {text} is the first release of that line; the newest is {max(final)}")
    return found


def _is(version: Version, text: str) -> bool:
    try:
        return version == Version(text)
    except InvalidVersion:
        return False


def _too_late(index: Index, known: Known, row: Profile, day: str, kit: Pins) -> tuple[Known, list[str]]:
    """What every profile has for scripts in a version that came out after the day, and would want what did as well."""
    names = [name for name in FOR_SCRIPTS if day and name in row.packages]
    known = _ask_all(index, known, dict.fromkeys(names, ""), kit)
    return known, [name for name in names if known.row(name, row.packages[name]).day > day]


def _spelt(requirement: str) -> str:
    return "".join(requirement.split()) if ";" not in requirement else requirement


def _whole_torch(torch: str, row: Profile) -> str:
    """With the build of the row's, such as +cpu, where none is named; the row's own where none is asked for."""
    if not torch:
        return row.torch
    build = row.torch.partition("+")[2]
    return f"{torch}+{build}" if build and "+" not in torch else torch


def _ask_all(index: Index, known: Known, versions: Mapping[str, str], kit: Pins) -> Known:
    """What the index knows of these, or a UserError with all that it lacks."""
    wrong = []
    for name, version in versions.items():
        try:
            known = ask(index, known, {name: version})
        except UnknownProject as error:
            near = difflib.get_close_matches(name, _names(known, kit), n=1, cutoff=0.75)
            if near == [name]:
                hint = "see whether pip's index-url, or the variable PIP_INDEX_URL, names the right one."
                wrong.append(f"{error.says}: {hint}")
            else:
                wrong.append(f"{error.says}: did you mean {near[0]}?" if near else str(error))
    refuse(wrong)
    return known


def _names(known: Known, kit: Pins) -> set[str]:
    """The projects that the kit has heard of: those of the table, of docker/pins.toml, and of all locks."""
    locked = (name for lock in LOCKS.rglob("*.txt") for name in locked_names(lock.read_text()))
    return {*known.releases, *kit.packages, *SETS_OWN, *locked}


def _is_undated(bound: str, kit: Pins) -> bool:
    """Whether a bound is of what has its version from docker/pins.toml or by itself, for which no day counts."""
    return canonicalize_name(Requirement(bound).name) in ("torch", "torchvision", *SETS_OWN, *kit.packages)


def _hardware(row: Profile, torch: str, known: Known) -> dict[str, str]:
    """The keys of a row with another torch than the one that it comes from."""
    found = {"torch": torch}
    if row.cuda:
        found |= cuda_parts_of(torch, known)
    if "torchvision" in row.packages:
        build = torch.partition("+")[2]
        version = torchvision_of(torch, known)
        found["torchvision"] = f"{version}+{build}" if version and build else version or NONE
    # A wheel that is built against one torch works with no other.
    return found | {part: NONE for part, file in row.files.items() if file.torch and file.torch != torch}


def check_torch(torch: str, torch_index: str, network: Network) -> None:
    """UserError where neither pip's folders nor the row's own index has that torch. The usual index was asked for its
    own before.
    """
    if not torch_index or any(any(folder.glob(f"torch-{torch}-*.whl")) for folder in network.index.folders):
        return
    try:
        found, why = _versions_at(f"{torch_index.rstrip('/')}/torch/", network), ""
    except requests.RequestException as error:
        found, why = [], in_few_words(innermost(error))
    if torch in found:
        return
    here = _of_folders(network.index.folders)
    if why:
        have = f"pip's folders have {', '.join(here)}" if here else "none of pip's folders has a torch"
        raise UserError(
            f"torch {torch} can't be had here: its index {torch_index} does not answer ({why}), and {have}: lay its "
            f"wheel into a folder of pip's find-links, or {'leave --torch out' if here else 'try again later'}."
        )
    near = nearest(torch.partition("+")[0], [each.partition("+")[0] for each in found])
    raise UserError(
        f"torch {torch} is not at {torch_index}: the nearest there {'are' if len(near) > 1 else 'is'} "
        f"{' and '.join(near) or 'none'}."
    )


def _of_folders(folders: Sequence[Path]) -> list[str]:
    found = {path.name.split("-")[1] for folder in folders for path in folder.glob("torch-*.whl")}
    return sorted(found, key=Version)


def _versions_at(url: str, network: Network) -> list[str]:
    """The versions of torch that a page of an index links to."""
    verify: bool | str = str(network.ca) if network.ca else True
    answer = requests.get(url, timeout=_TIMEOUT_S, verify=verify)
    answer.raise_for_status()
    return sorted(set(re.findall(r"torch-([0-9][^-\s\"<>]*)-cp", unquote(answer.text))))
