"""docker/pins.toml as objects: every version, URL, hash, base image and budget of the kit.

`pins_file.load` reads the file, `Pins.profile` gives one profile of it, with the software set that it names.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from berth.common.errors import UserError

ROOT = Path(__file__).resolve().parents[3]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "berth"
"""The user's own folder for what outlives a command: secrets of builds, logs, measured sizes."""
PATH = ROOT / "docker" / "pins.toml"
DEFAULT_PROFILE = "cpu"
IMAGES = ("train", "serve")
KIT_TRANSFORMERS = 5
"""The first major version of transformers that run_qa and serve are for."""
NONE = "none"
UNPINNED = "unpinned"
CUDA_PARTS = ("cuda", "cudnn", "nccl", "triton")
FILE_PARTS = {"train": ("efa", "smddp", "gdrcopy", "cuda-compat"), "serve": ("cuda-compat",)}
"""The parts of each image that come as files of their own, not as packages of an index."""


@dataclass(frozen=True)
class PinnedFile:
    """One file that is no package of an index. `url` is empty for one that only a mirror has; a signature lies next to
    the file, as NAME.sig, where the key's fingerprint is given; `torch` is the only one that it works with.
    """

    part: str
    version: str
    name: str
    url: str
    sha256: str
    torch: str = ""
    key_url: str = ""
    key_fingerprint: str = ""

    @property
    def key(self) -> str:
        """What its table in pins.toml is called, such as efa-1.47.0."""
        return f"{self.part}-{self.version}"

    @property
    def key_file(self) -> str:
        """The name of the file that holds the signer's key."""
        return file_name(self.key_url)


@dataclass(frozen=True)
class SoftwareSet:
    """One [software.NAME] of pins.toml: what images carry besides torch and what the hardware dictates.

    `packages` are its own versions by PyPI's names, also of [packages] where it has another, "none" included;
    `requirements` further ones, and `constraints` bounds of what all ask for, both as pip writes them. `debian` are
    packages of the base's archive, for the training image. `day` is the one as of which all else is resolved, empty for
    today. `environment` are variables of every process of its images.
    """

    name: str
    images: tuple[str, ...]
    packages: Mapping[str, str]
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    debian: tuple[str, ...] = ()
    day: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Profile:
    """One row of pins.toml, hardware × software.

    `hardware` is the row whose torch layers it has, and whose locks up to torch: its own name, or that of the row which
    it comes `from` (`origin`, else empty) where torch, its index and CUDA are the same. `packages` are PyPI names and
    versions, with those of the software set; `cuda` the versions of CUDA_PARTS, empty without CUDA; `files` what is no
    package of an index, by part. None of them has what the row or the set says "none" to. `budget` is compressed
    megabytes an image. `torch_index` is empty for the default index. `instances` is an instance type of SageMaker's
    that each image fits. `left_out` are the files of the row that a build leaves out.
    """

    name: str
    origin: str
    hardware: str
    python: str
    software: SoftwareSet
    torch_index: str
    packages: Mapping[str, str]
    budget: Mapping[str, int]
    cuda: Mapping[str, str]
    files: Mapping[str, PinnedFile]
    instances: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, PinnedFile] = field(default_factory=dict)

    @property
    def torch(self) -> str:
        return self.packages["torch"]

    @property
    def images(self) -> tuple[str, ...]:
        """The images that it has, as its software set says."""
        return self.software.images

    @property
    def runs_kit(self) -> bool:
        """Whether the kit's own programs, run_qa and serve, run in its images: they are for transformers 5."""
        return int(self.packages["transformers"].partition(".")[0]) >= KIT_TRANSFORMERS

    def available_images(self, images: Sequence[str]) -> tuple[str, ...]:
        """Those of some images that it has; UserError where it has none of them."""
        if found := tuple(image for image in images if image in self.images):
            return found
        raise UserError(
            f"profile {self.name} has no image {' or '.join(images)}: its software set {self.software.name} is for "
            f"{' and '.join(self.images)}; name an image that it has, or another profile: what the one trained, the "
            f"inference image of any other serves, such as --profile {DEFAULT_PROFILE}."
        )

    def openvino(self, image: str) -> str:
        """The version of OpenVINO in an image, or "none": with CUDA the inference image computes on the GPU, while a
        model that was trained on one is often served on a CPU, and converted where it was trained.
        """
        return NONE if image == "serve" and self.cuda else self.packages.get("openvino", NONE)

    def without(self, parts: Collection[str]) -> "Profile":
        """The same profile without those parts; UserError for an unknown part."""
        for part in parts:
            if part not in FILE_PARTS["train"]:
                raise UserError(f"Unknown part {part!r}: --without takes {', '.join(FILE_PARTS['train'])}.")
        left_out = {part: file for part, file in self.files.items() if part in parts}
        files = {part: file for part, file in self.files.items() if part not in parts}
        return replace(self, files=files, left_out={**self.left_out, **left_out})

    @property
    def with_all_parts(self) -> "Profile":
        """The same profile with the parts that a build leaves out."""
        return replace(self, files={**self.files, **self.left_out}, left_out={})


@dataclass(frozen=True)
class Pins:
    """All of pins.toml; `base_image` is pulled, `imported_base` is what docker/base.sh makes instead. `packages` hold
    where a software set has no other version.
    """

    base_image: str
    imported_base: str
    build_tools: Mapping[str, str]
    packages: Mapping[str, str]
    source_only: Mapping[str, tuple[str, ...]]
    files: Mapping[str, PinnedFile]
    software: Mapping[str, SoftwareSet]
    profiles: Mapping[str, Profile]

    def profile(self, name: str) -> Profile:
        """The row called `name`; UserError names the nearest where there is none."""
        if name in self.profiles:
            return self.profiles[name]
        near = difflib.get_close_matches(name, self.profiles, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else "choose one of them."
        raise UserError(f"there is no profile {name!r}; docker/pins.toml has {', '.join(self.profiles)}: {hint}")

    def file(self, name: str) -> PinnedFile:
        """The file called PART or PART-VERSION; UserError where there is none, or several of that part."""
        found = [file for key, file in self.files.items() if name in (key, file.part)]
        if len(found) == 1:
            return found[0]
        if found:
            raise UserError(
                f"docker/pins.toml has several files of {name}: name one of {', '.join(file.key for file in found)}."
            )
        raise UserError(f"docker/pins.toml has no file {name!r}: name one of {', '.join(self.files)}.")


def file_name(url: str) -> str:
    """The last part of a URL's path, as a file is called."""
    return unquote(urlsplit(url).path).rpartition("/")[2]


def profile_names(path: Path = PATH) -> tuple[str, ...]:
    """The profiles' names alone, quickly: nothing of the file is checked, and there are none where it can't be read."""
    try:
        return tuple(tomllib.loads(path.read_text()).get("profiles", {}))
    except (OSError, ValueError):
        return ()


def version(root: Path = ROOT) -> str:
    """The kit's version; pyproject.toml is its only source."""
    found: str = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    return found


def record_sha256(text: str, key: str, sha256: str) -> str:
    """The text of pins.toml with the sha256 of the file `key` set; nothing else changes, comments included."""
    table = rf"""^\[files\.["']?{re.escape(key)}["']?\][^\n]*\n(?:(?!\[)[^\n]*\n)*?sha256[ \t]*=[ \t]*"""
    # In one pair of quotes, with something between: of three the first two would be taken for an empty text.
    found = re.search(rf"(?:{table})([\"'])([^\"'\n]+)\1", text, flags=re.MULTILINE)
    if found is None:
        raise UserError(
            f'a line sha256 = "…" of [files."{key}"] is not found in docker/pins.toml: set it to "{sha256}" by hand.'
        )
    return text[: found.start(2)] + sha256 + text[found.end(2) :]
