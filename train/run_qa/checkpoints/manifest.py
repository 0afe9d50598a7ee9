"""The manifest of a checkpoint, berth_checkpoint.json: a checkpoint is a folder with a manifest and all its files.

The manifest is written last, so without one the job was killed, or the copy was interrupted. SageMaker restores the
files from S3 in any order, perhaps not completely, so they are compared with the manifest's sizes and SHA-256.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

MANIFEST = "berth_checkpoint.json"
CUT_OFF = f"{MANIFEST} is missing or cut off"
OTHER_VERSION = f"{MANIFEST} is from another version of berth"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file's size, and the digest of its content."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class CheckpointManifest:
    """The content of a manifest. Numbers are at least 1, except `step`.

    sequence: higher than that of every earlier checkpoint in the folder, even if the training began again.
    per_device_batch, accumulation: windows per micro-batch of a rank, and micro-batches per step.
    resumable: it has optimizer and scheduler, not only weights (save_only_model).
    identity: the digests of identity.py. recipe: learning rate, schedule and so on (recipe_changes.py).
    kit: the version of berth that wrote it. job: SageMaker's name of the job that wrote it; empty if it had none.
    files: by path in the folder.
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
        """The windows of one step on all ranks."""
        return self.ranks * self.per_device_batch * self.accumulation


def hash_files(folder: Path) -> dict[str, StoredFile]:
    """Size and digest of every file below a folder, except the manifest, by path in the folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {path.relative_to(folder).as_posix(): StoredFile(path.stat().st_size, sha256(path)) for path in paths}


def read(folder: Path) -> CheckpointManifest | str:
    """The manifest of a folder, or the reason why it has none: CUT_OFF or OTHER_VERSION."""
    try:
        content = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return CUT_OFF
    try:
        known = {field.name: content[field.name] for field in fields(CheckpointManifest)}
        known["files"] = {name: StoredFile(file["bytes"], file["sha256"]) for name, file in known["files"].items()}
        return CheckpointManifest(**known)
    except (KeyError, TypeError, AttributeError):
        return OTHER_VERSION


def size_fault(folder: Path, manifest: CheckpointManifest) -> str:
    """A sentence about the first file that is missing or has another size; empty if there is none."""
    for name, file in manifest.files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if (size := path.stat().st_size) != file.bytes:
            return f"{name} has {size} of {file.bytes} bytes"
    return ""


def content_fault(folder: Path, manifest: CheckpointManifest) -> str:
    """Like `size_fault`, and also compares the content of all files."""
    if fault := size_fault(folder, manifest):
        return fault
    wrong = (name for name, file in manifest.files.items() if sha256(folder / name) != file.sha256)
    return next((f"{name} has changed since it was written" for name in wrong), "")


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
