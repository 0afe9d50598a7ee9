"""Checks whether a profile's folder in docker/locks matches docker/pins.toml."""

from pathlib import Path

from berth.images.locks.lock_text import TORCH_LAYERS, request_of
from berth.images.locks.locks import lock_requests
from berth.images.pins.layer_files import layer_files
from berth.images.pins.pins import Pins, Profile


def lock_problem(pins: Pins, profile: Profile, image: str, locks: Path) -> str:
    """A sentence on the first missing or outdated file in `locks` for an image of a profile; empty if there is none."""
    again = f"run `python build.py pins --profile {profile.name}`, which locks it again."
    if not (locks / profile.name).is_dir():
        return f"docker/locks has nothing for profile {profile.name}: {again}"
    if profile.hardware != profile.name and (problem := _hardware_problem(pins, profile, locks)):
        return problem
    for request in lock_requests(pins, profile):
        folder, stem = Path(request.path).parent, Path(request.path).stem
        if stem.partition("-")[2] not in ("", image):
            continue
        paths = [folder / f"{layer}.txt" for layer in TORCH_LAYERS] if stem == "pytorch" else [Path(request.path)]
        if missing := [str(path) for path in (*map(Path, request.below), *paths) if not (locks / path).exists()]:
            return f"docker/locks/{missing[0]} of profile {profile.name} is missing: {again}"
        digest = request.digest(profile, locks)
        if old := [path for path in paths if request_of((locks / path).read_text()) != digest]:
            return (
                f"docker/locks/{old[0]} is outdated, because docker/pins.toml or a lock below it has changed: {again}"
            )
    for name, text in layer_files(profile.with_all_parts).items():
        path = locks / profile.name / name
        if not path.exists() or path.read_text() != text:
            return (
                f"docker/locks/{profile.name}/{name} does not match docker/pins.toml: run `python build.py pins "
                "--no-locks`, which writes it again."
            )
    return ""


def _hardware_problem(pins: Pins, profile: Profile, locks: Path) -> str:
    """How a profile's locks up to torch differ from its hardware profile's, as a sentence; empty if identical."""
    hardware_profile = pins.profile(profile.hardware)
    request = next(
        each for each in lock_requests(pins, hardware_profile) if each.path == f"{hardware_profile.name}/pytorch.txt"
    )
    digest = request.digest(hardware_profile, locks)
    for layer in TORCH_LAYERS:
        hardware_lock, path = locks / hardware_profile.name / f"{layer}.txt", locks / profile.name / f"{layer}.txt"
        if not hardware_lock.exists() or request_of(hardware_lock.read_text()) != digest:
            return (
                f"docker/locks/{hardware_profile.name}/{layer}.txt, which profile {profile.name} shares, does not "
                f"match docker/pins.toml: run `python build.py pins --profile {hardware_profile.name}`, then the same "
                f"for {profile.name}."
            )
        if not path.exists() or path.read_bytes() != hardware_lock.read_bytes():
            return (
                f"docker/locks/{profile.name}/{layer}.txt differs from that of {hardware_profile.name}, but must be "
                f"identical: run `python build.py pins --profile {profile.name}`, which locks it again."
            )
    return ""
