"""docker/pins.toml as objects: every version, URL, hash, base image and budget.

`pins_file.load` reads the file; `Pins.profile` returns one profile with its software set.
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
"""The user's cache: logs, measured sizes, downloaded files, and secrets of running builds."""
PATH = ROOT / "docker" / "pins.toml"
DEFAULT_PROFILE = "cpu"
IMAGES = ("train", "serve")
FIRST_TRANSFORMERS = 5
"""The first major version of transformers that run_qa and serve are for."""
NONE = "none"
UNPINNED = "unpinned"
CUDA_PARTS = ("cuda", "cudnn", "nccl", "triton")
FILE_PARTS = {"train": ("efa", "smddp", "gdrcopy", "cuda-compat"), "serve": ("cuda-compat",)}
"""The parts of each image that are files, not packages of an index."""


@dataclass(frozen=True)
class PinnedFile:
    """A file that is not in a package index. url: empty if only a mirror has it. key_fingerprint: if given, the file
    has a signature next to it, NAME.sig. torch: the only version that it works with, empty for any.
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
        """The name of its table in pins.toml, such as efa-1.47.0."""
        return f"{self.part}-{self.version}"

    @property
    def key_file(self) -> str:
        """The name of the file that holds the signer's key."""
        return file_name(self.key_url)


@dataclass(frozen=True)
class SoftwareSet:
    """One [software.NAME] of pins.toml: the packages of images besides torch and other hardware-dependent ones.

    packages: its versions by PyPI name, including those that differ from [packages], or "none". requirements: further
    packages; constraints: bounds for all; both in pip's form. debian: Debian packages for the training image. day:
    other versions are resolved as of it; empty for today. environment: variables for every Python in its images.
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
    """One profile of pins.toml: hardware × software.

    origin: the profile in its `from`, or empty. hardware: the profile whose torch layers and locks up to torch it
    shares: its own name, or the origin's hardware if torch, its index and CUDA are the same. packages: versions by PyPI
    name, with those of the software set; cuda: the versions of CUDA_PARTS, empty without CUDA; files: PinnedFile by
    part; none of these has entries for "none". budget: compressed megabytes per image. torch_index: empty for the
    default index. instances: a SageMaker instance type that fits each image. left_out: files that a build omits.
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
        """The images that it has, from its software set."""
        return self.software.images

    @property
    def runs_berth(self) -> bool:
        """Whether berth's own programs, run_qa and serve, run in its images: they need transformers 5."""
        return int(self.packages["transformers"].partition(".")[0]) >= FIRST_TRANSFORMERS

    def available_images(self, images: Sequence[str]) -> tuple[str, ...]:
        """Those of `images` that it has; UserError if it has none of them."""
        if found := tuple(image for image in images if image in self.images):
            return found
        raise UserError(
            f"profile {self.name} has no image {' or '.join(images)}: its software set {self.software.name} is for "
            f"{' and '.join(self.images)}; name an image that it has, or another profile. The inference image of "
            f"another profile, such as --profile {DEFAULT_PROFILE}, can serve the models that it trains."
        )

    def openvino(self, image: str) -> str:
        """The version of OpenVINO in an image, or "none". With CUDA the inference image has none, because it uses the
        GPU; the training image has it, because models are converted there for endpoints on CPUs.
        """
        return NONE if image == "serve" and self.cuda else self.packages.get("openvino", NONE)

    def without(self, parts: Collection[str]) -> "Profile":
        """The profile without these parts; UserError for an unknown part."""
        for part in parts:
            if part not in FILE_PARTS["train"]:
                raise UserError(f"Unknown part {part!r}: --without takes {', '.join(FILE_PARTS['train'])}.")
        left_out = {part: file for part, file in self.files.items() if part in parts}
        files = {part: file for part, file in self.files.items() if part not in parts}
        return replace(self, files=files, left_out={**self.left_out, **left_out})

    @property
    def with_all_parts(self) -> "Profile":
        """The profile including the parts that a build leaves out."""
        return replace(self, files={**self.files, **self.left_out}, left_out={})


@dataclass(frozen=True)
class Pins:
    """All of pins.toml. base_image: the pinned base; imported_base: the name of the base that docker/base.sh makes.
    packages: versions for every software set that has no other.
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
        """The profile called `name`; UserError suggests the nearest name if there is none."""
        if name in self.profiles:
            return self.profiles[name]
        near = difflib.get_close_matches(name, self.profiles, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else "choose one of them."
        raise UserError(f"there is no profile {name!r}; docker/pins.toml has {', '.join(self.profiles)}: {hint}")

    def file(self, name: str) -> PinnedFile:
        """The file called PART or PART-VERSION; UserError if there is none, or the part has several."""
        found = [file for key, file in self.files.items() if name in (key, file.part)]
        if len(found) == 1:
            return found[0]
        if found:
            raise UserError(
                f"docker/pins.toml has several files for {name}: name one of {', '.join(file.key for file in found)}."
            )
        raise UserError(f"docker/pins.toml has no file {name!r}: name one of {', '.join(self.files)}.")


def file_name(url: str) -> str:
    """The file name in a URL: the last part of its path."""
    return unquote(urlsplit(url).path).rpartition("/")[2]


def profile_names(path: Path = PATH) -> tuple[str, ...]:
    """The names of the profiles, read quickly without validating the file; empty if it can't be read."""
    try:
        return tuple(tomllib.loads(path.read_text()).get("profiles", {}))
    except (OSError, ValueError):
        return ()


def version(root: Path = ROOT) -> str:
    """berth's version, from pyproject.toml, its only source."""
    found: str = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    return found


def record_sha256(text: str, key: str, sha256: str) -> str:
    """The text of pins.toml with the sha256 of the file `key` set; all else, comments included, stays."""
    table = rf"""^\[files\.["']?{re.escape(key)}["']?\][^\n]*\n(?:(?!\[)[^\n]*\n)*?sha256[ \t]*=[ \t]*"""
    # The value must not be empty: otherwise the first two of three quotes would match as an empty text.
    found = re.search(rf"(?:{table})([\"'])([^\"'\n]+)\1", text, flags=re.MULTILINE)
    if found is None:
        raise UserError(f'docker/pins.toml has no line sha256 = "…" in [files."{key}"]: set it to "{sha256}" by hand.')
    return text[: found.start(2)] + sha256 + text[found.end(2) :]
