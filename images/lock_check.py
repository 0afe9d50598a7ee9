"""Whether a profile's locks are those of its row: a row of docker/pins.toml that was changed wants them made again."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from berth.images.locks import LockRequest, entries, lock_requests, torch_locks
from berth.images.pins import Pins, Profile
from berth.images.software import FILE, software_json


def lock_problem(pins: Pins, profile: Profile, image: str, locks: Path) -> str:
    """What an image of a profile lacks in the folder `locks`, in a sentence; empty where all is there."""
    again = f"run `python build.py pins --profile {profile.name}`, which locks it again."
    if not (locks / torch_locks(profile)[0]).exists():
        return (
            f"profile {profile.name} has no locks in docker/locks: run `python build.py pins --profile "
            f"{profile.hardware}`, which makes them."
        )
    torch = torch_locks(profile)
    for request in lock_requests(pins, profile):
        made = torch if request.path in torch else [request.path]
        if Path(request.path).stem.partition("-")[2] in ("", image):
            if not (locks / request.path).exists():
                return f"profile {profile.name} has no docker/locks/{request.path}: {again}"
            if differs := _differs(request, made, locks):
                return f"docker/locks/{request.path} is older than docker/pins.toml, {differs}: {again}"
    path = locks / profile.name / FILE
    if not path.exists() or path.read_text() != software_json(profile):
        return (
            f"docker/locks/{profile.name}/{FILE} is not what docker/pins.toml says: run `python build.py pins "
            "--no-locks`, which writes it."
        )
    return ""


def _differs(request: LockRequest, made: Sequence[str], locks: Path) -> str:
    """What a request asks for that its locks, `made` of it, and those below don't have; empty where they have all."""
    locked = _locked(locks, (*request.below, *made))
    resolved_only = {canonicalize_name(name) for name in request.omit}
    for text in request.requirements:
        asked = Requirement(text)
        version = locked.get(canonicalize_name(asked.name))
        if canonicalize_name(asked.name) in resolved_only:
            continue
        if version is None:
            return f"which asks for {text}"
        if not asked.specifier.contains(version, prereleases=True):
            return f"which asks for {text} where it has {version}"
    # What lies below another layer may be replaced there.
    for text in request.constraints if request.answers else ():
        bound = Requirement(text)
        version = locked.get(canonicalize_name(bound.name))
        if version is not None and not bound.specifier.contains(version, prereleases=True):
            return f"which allows {text} where it has {version}"
    return ""


def _locked(locks: Path, paths: Sequence[str]) -> Mapping[str, str]:
    """The version of each package in these locks, of which the later lie above."""
    found: dict[str, str] = {}
    for path in paths:
        for name, version, _ in entries((locks / path).read_text()):
            found[canonicalize_name(name)] = version
    return found
