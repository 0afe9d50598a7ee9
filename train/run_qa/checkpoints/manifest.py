"""What a checkpoint is: a folder with a manifest, berth_checkpoint.json, and all the files that it names.

The manifest is written last, so a folder without one is of a job that was killed, or of a copy that was cut off. S3
brings files back in any order, and half of one: what lies there is compared with size and SHA-256.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

MANIFEST = "berth_checkpoint.json"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file's size and content."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    """What a checkpoint says of itself; numbers count from 1, but `step`.

    sequence: higher than that of every checkpoint which was in the folder before, also of a training that began again.
    per_device_batch, accumulation: windows of a rank at once, and how often before a step.
    resumable: it has more than weights (not save_only_model).
    identity: the digests of identity.py. recipe: learning rate, schedule and so on (recipe_changes.py).
    job: SageMaker's name of the job that wrote it, empty if it had none.
    files: by their path in the folder.
    """

    step: int
    sequence: int
    ranks: int
    per_device_batch: int
    accumulation: int
    resumable: bool
    identity: Mapping[str, str]
    recipe: Mapping[str, Any] = field(default_factory=dict)
    kit: str = ""
    job: str = ""
    files: Mapping[str, StoredFile] = field(default_factory=dict)

    @property
    def global_batch(self) -> int:
        """The windows of a step, of all ranks."""
        return self.ranks * self.per_device_batch * self.accumulation


def files_of(folder: Path) -> dict[str, StoredFile]:
    """Every file below a folder, by its path in it."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {path.relative_to(folder).as_posix(): StoredFile(path.stat().st_size, sha256(path)) for path in paths}


def text_of(manifest: CheckpointManifest) -> str:
    """The file's content."""
    return json.dumps(asdict(manifest), indent=1) + "\n"


def read(folder: Path) -> CheckpointManifest | None:
    """The manifest of a folder; None where there is none that this version of the kit can read."""
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        known = {each.name: found[each.name] for each in fields(CheckpointManifest)}
        known["files"] = {
            str(name): StoredFile(int(each["bytes"]), str(each["sha256"])) for name, each in known["files"].items()
        }
        known["recipe"] = dict(known["recipe"])
        known["identity"] = {str(name): str(digest) for name, digest in known["identity"].items()}
        numbers = ("step", "sequence", "ranks", "per_device_batch", "accumulation")
        known |= {name: int(known[name]) for name in numbers}
        return CheckpointManifest(**known) if min(known[name] for name in numbers[2:]) > 0 else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def is_cut_off(folder: Path) -> bool:
    """Whether what `read` can't read is half a manifest or none: a whole one may be of another version of the kit."""
    try:
        return not isinstance(json.loads((folder / MANIFEST).read_text(encoding="utf-8")), dict)
    except (OSError, ValueError, RecursionError):
        return True


def missing(folder: Path, manifest: CheckpointManifest) -> str:
    """Which of the files is not there or has another size, in words; empty if none."""
    for name, file in manifest.files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if (found := path.stat().st_size) != file.bytes:
            return f"{name} has {found} of {file.bytes} bytes"
    return ""


def altered(folder: Path, manifest: CheckpointManifest) -> str:
    """The same, and of each file its content; reads all of them."""
    if fault := missing(folder, manifest):
        return fault
    wrong = (name for name, file in manifest.files.items() if sha256(folder / name) != file.sha256)
    return next((f"{name} has other content than was written" for name in wrong), "")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
