"""Whether a profile's folder in docker/locks is what docker/pins.toml asks for, or must be made again."""

from pathlib import Path

from berth.images.locks.lock_text import TORCH_LAYERS, request_of
from berth.images.locks.locks import lock_requests
from berth.images.pins.layer_files import layer_files
from berth.images.pins.pins import Pins, Profile


def lock_problem(pins: Pins, profile: Profile, image: str, locks: Path) -> str:
    """What is missing or old in the folder `locks` for an image of a profile, in a sentence; empty if nothing is."""
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
        if absent := [str(path) for path in (*map(Path, request.below), *paths) if not (locks / path).exists()]:
            return f"docker/locks/{absent[0]} of profile {profile.name} is missing: {again}"
        digest = request.digest(profile, locks)
        if old := [path for path in paths if request_of((locks / path).read_text()) != digest]:
            return f"docker/locks/{old[0]} was made for another request than docker/pins.toml has now: {again}"
    for name, text in layer_files(profile.with_all_parts).items():
        path = locks / profile.name / name
        if not path.exists() or path.read_text() != text:
            return (
                f"docker/locks/{profile.name}/{name} is not what docker/pins.toml says: run `python build.py pins "
                "--no-locks`, which writes it."
            )
    return ""


def _hardware_problem(pins: Pins, profile: Profile, locks: Path) -> str:
    """Why a profile's locks up to torch are not those of its hardware's profile, which it must share."""
    own = pins.profile(profile.hardware)
    request = next(each for each in lock_requests(pins, own) if each.path == f"{own.name}/pytorch.txt")
    digest = request.digest(own, locks)
    for layer in TORCH_LAYERS:
        of_hardware, path = locks / own.name / f"{layer}.txt", locks / profile.name / f"{layer}.txt"
        if not of_hardware.exists() or request_of(of_hardware.read_text()) != digest:
            return (
                f"docker/locks/{own.name}/{layer}.txt, which profile {profile.name} shares, was not made for what "
                f"docker/pins.toml has now: run `python build.py pins --profile {own.name}`, then the same for "
                f"{profile.name}."
            )
        if not path.exists() or path.read_bytes() != of_hardware.read_bytes():
            return (
                f"docker/locks/{profile.name}/{layer}.txt differs from that of {own.name}, which it must equal: run "
                f"`python build.py pins --profile {profile.name}`, which locks it again."
            )
    return ""
