"""`profile add`: completes what was asked for, locks and proves it in a folder of its own, and lays the result where it
belongs. Until then nothing of the checkout changes; what fails or is interrupted leaves it as it was.
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
    """A profile that stands in docker/pins.toml now, with what its proof wanted and did not show."""

    profile: Profile
    remarks: list[str]


@dataclass(frozen=True)
class Places:
    """The two places that a profile is written to."""

    pins: Path = pins.PATH
    locks: Path = LOCKS


def add_profile(
    request: ProfileRequest,
    network: Network,
    proof: Proof,
    step: Callable[[str], None] = lambda done: None,
    places: Places | None = None,
) -> Added:
    """Adds a profile; UserError, with all files as they were, where it can't be."""
    places = places or Places()
    whole = complete(request, pins_file.load(places.pins), network, step)
    with (
        explain_os_errors(places.locks, "the locks"),
        scratch_folder(NEW_LOCKS, places.locks.parent) as folder,
    ):
        new = folder / "locks"
        shutil.copytree(places.locks, new)
        all_pins, profile = _with_profile(whole, places.pins, folder)
        prover = Prover(new, network.index.folders, proof, step)
        target = prover.prepare(all_pins, profile)  # before the locks, which take long and would be for nothing
        step(f"locking {profile.name}" + (f" as of {whole.day}" if whole.day else ""))
        shutil.rmtree(new / profile.name, ignore_errors=True)
        write_locks(all_pins, profile, network.index.folders, new)
        proved = prover.prove(profile, target)
        if proved.needed:
            whole = _with_variables(whole, {each.variable: each.value for each in proved.needed})
            all_pins, profile = _with_profile(whole, places.pins, folder)
            render([profile], new)
        _install(whole, new / profile.name, places)
    wanted = [
        f"{each.variable}={each.value} is set in the images of {profile.name}: {each.note}." for each in proved.needed
    ]
    return Added(profile, [*wanted, *proved.unproved])


def _with_variables(whole: CompleteProfile, variables: Mapping[str, str]) -> CompleteProfile:
    environment = (*whole.request.environment, *(f"{name}={value}" for name, value in variables.items()))
    return replace(whole, request=replace(whole.request, environment=environment))


def _with_profile(whole: CompleteProfile, path: Path, folder: Path) -> tuple[Pins, Profile]:
    """What docker/pins.toml will say, checked as every load of it is, and the new row."""
    text = path.read_text()
    new = folder / path.name
    new.write_text(appended(text, tables(whole, pins_file.load(path))))
    try:
        all_pins = pins_file.load(new)
    except UserError as error:
        raise UserError(str(error).replace(str(new), str(path))) from None
    return all_pins, all_pins.profile(whole.request.name)


def _install(whole: CompleteProfile, made: Path, places: Places) -> None:
    """The locks, then the row: a folder of locks without a row is nothing, and the next `add` of that name replaces it.

    Into what pins.toml says by now: another `add` may have ended in these minutes.
    """
    text = appended(places.pins.read_text(), tables(whole, pins_file.load(places.pins)))
    target = places.locks / whole.request.name
    shutil.rmtree(target, ignore_errors=True)
    try:
        os.rename(made, target)
        _write_pins(text, places)
    except BaseException:
        if whole.request.name not in pins.profile_names(places.pins):
            shutil.rmtree(target, ignore_errors=True)
        raise


def _write_pins(text: str, places: Places) -> None:
    """pins.toml with this text, and the bake.json that belongs to it; neither if the second can't be written."""
    before = places.pins.read_text()
    with explain_os_errors(places.pins.parent, places.pins.name), atomic_write(places.pins) as new:
        new.write_text(text)
    try:
        render_bake(pins_file.load(places.pins), places.pins.parent)
    except BaseException:
        with atomic_write(places.pins) as new:
            new.write_text(before)
        raise


def remove_profile(name: str, places: Places | None = None) -> list[str]:
    """Removes a row, its locks, and its software set where no other row names it; what went, by name."""
    places = places or Places()
    all_pins = pins_file.load(places.pins)
    profile = all_pins.profile(name)
    if name == pins.DEFAULT_PROFILE:
        raise UserError(f"{name} is the default profile of docker/Dockerfile and of build.py, and stays.")
    if children := [each.name for each in all_pins.profiles.values() if each.origin == name]:
        raise UserError(
            f"{', '.join(children)} {'come' if len(children) > 1 else 'comes'} from {name}: remove "
            f"{'them' if len(children) > 1 else 'it'} first."
        )
    gone = [f"profiles.{name}"]
    if not [each for each in all_pins.profiles.values() if each.software == profile.software and each.name != name]:
        gone.insert(0, f"software.{profile.software.name}")
    _write_pins(without(places.pins.read_text(), gone), places)
    with explain_os_errors(places.locks, name), scratch_folder(NEW_LOCKS, places.locks.parent) as folder:
        if (places.locks / name).is_dir():  # at once: half a folder would be taken for a profile's
            (places.locks / name).rename(folder / name)
    return [*(f"[{table}] of {places.pins.name}" for table in gone), f"docker/locks/{name}"]
