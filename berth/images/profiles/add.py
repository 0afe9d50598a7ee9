"""`profile add` and `profile remove`. `add` completes the request, locks and proves it in a temporary folder, and only
then changes the checkout. If it fails or is interrupted, the checkout is unchanged.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from berth.common.errors import UserError
from berth.common.files import atomic_write, explain_os_errors
from berth.images.locks.locks import LOCKS, write_locks
from berth.images.network.build_network import Network
from berth.images.pins import pins, pins_file
from berth.images.pins.layer_files import render, render_bake
from berth.images.pins.pins import Pins, Profile
from berth.images.pins.pins_edit import appended, without
from berth.images.profiles.complete import complete
from berth.images.profiles.proof import Proof, Prover
from berth.images.profiles.request import CompleteProfile, ProfileRequest, tables
from berth.images.scratch import NEW_LOCKS, scratch_folder


@dataclass(frozen=True)
class Added:
    """A profile that was added, with remarks: variables that its proof needed, and what was not proved."""

    profile: Profile
    remarks: list[str]


@dataclass(frozen=True)
class Places:
    """The file and the folder that a profile is written to."""

    pins: Path = pins.PATH
    locks: Path = LOCKS


_CHECKOUT = Places()


def add_profile(
    request: ProfileRequest,
    network: Network,
    proof: Proof,
    step: Callable[[str], None] = lambda done: None,
    places: Places = _CHECKOUT,
) -> Added:
    """Adds a profile; UserError if that fails, with all files unchanged."""
    whole = complete(request, pins_file.load(places.pins), network, step)
    with (
        explain_os_errors(places.locks, "the locks"),
        scratch_folder(NEW_LOCKS, places.locks.parent) as folder,
    ):
        new = folder / "locks"
        shutil.copytree(places.locks, new)
        all_pins, profile = _with_profile(whole, places.pins, folder)
        prover = Prover(new, network.index.folders, proof, step)
        target = prover.prepare(all_pins, profile)  # before the locks: they take long, and it may fail
        step(f"locking {profile.name}" + (f" as of {whole.day}" if whole.day else ""))
        shutil.rmtree(new / profile.name, ignore_errors=True)
        write_locks(all_pins, profile, network.index.folders, new)
        proved = prover.prove(profile, target)
        if proved.needed:
            whole = _with_variables(whole, {each.variable: each.value for each in proved.needed})
            all_pins, profile = _with_profile(whole, places.pins, folder)
            render([profile], new)
        _install(whole, new / profile.name, places)
    variables = [
        f"{each.variable}={each.value} is set in the images of {profile.name}: {each.note}." for each in proved.needed
    ]
    return Added(profile, [*variables, *proved.unproved])


def _with_variables(whole: CompleteProfile, variables: Mapping[str, str]) -> CompleteProfile:
    environment = (*whole.request.environment, *(f"{name}={value}" for name, value in variables.items()))
    return replace(whole, request=replace(whole.request, environment=environment))


def _with_profile(whole: CompleteProfile, path: Path, folder: Path) -> tuple[Pins, Profile]:
    """The future contents of docker/pins.toml, validated, and the new profile in it."""
    text = path.read_text()
    new = folder / path.name
    new.write_text(appended(text, tables(whole, pins_file.load(path))))
    try:
        all_pins = pins_file.load(new)
    except UserError as error:
        raise UserError(str(error).replace(str(new), str(path))) from None
    return all_pins, all_pins.profile(whole.request.name)


def _install(whole: CompleteProfile, new_locks: Path, places: Places) -> None:
    """Moves the locks into place, then writes pins.toml. Locks without a profile do no harm: the next `add` of that
    name replaces them.

    Reads pins.toml again, because another `add` may have changed it meanwhile.
    """
    text = appended(places.pins.read_text(), tables(whole, pins_file.load(places.pins)))
    target = places.locks / whole.request.name
    shutil.rmtree(target, ignore_errors=True)
    try:
        os.rename(new_locks, target)
        _write_pins(text, places)
    except BaseException:
        if whole.request.name not in pins.profile_names(places.pins):
            shutil.rmtree(target, ignore_errors=True)
        raise


def _write_pins(text: str, places: Places) -> None:
    """Writes this text into pins.toml, and the matching bake.json; restores pins.toml if bake.json fails."""
    before = places.pins.read_text()
    with explain_os_errors(places.pins.parent, places.pins.name), atomic_write(places.pins) as new:
        new.write_text(text)
    try:
        render_bake(pins_file.load(places.pins), places.pins.parent)
    except BaseException:
        with atomic_write(places.pins) as new:
            new.write_text(before)
        raise


def remove_profile(name: str, places: Places = _CHECKOUT) -> list[str]:
    """Removes a profile, its locks, and its software set if no other profile uses it; returns what was removed."""
    all_pins = pins_file.load(places.pins)
    profile = all_pins.profile(name)
    if name == pins.DEFAULT_PROFILE:
        raise UserError(f"{name} can't be removed: it is the default profile of docker/Dockerfile and build.py.")
    if children := [each.name for each in all_pins.profiles.values() if each.origin == name]:
        raise UserError(
            f"{', '.join(children)} {'come' if len(children) > 1 else 'comes'} from {name}: remove "
            f"{'them' if len(children) > 1 else 'it'} first."
        )
    removed = [f"profiles.{name}"]
    if not [each for each in all_pins.profiles.values() if each.software == profile.software and each.name != name]:
        removed.insert(0, f"software.{profile.software.name}")
    _write_pins(without(places.pins.read_text(), removed), places)
    with explain_os_errors(places.locks, name), scratch_folder(NEW_LOCKS, places.locks.parent) as folder:
        if (places.locks / name).is_dir():  # moved, then deleted: a partial folder would look like a profile's
            (places.locks / name).rename(folder / name)
    return [*(f"[{table}] of {places.pins.name}" for table in removed), f"docker/locks/{name}"]
