"""The checkpoint folder: lists its checkpoints, completes a new one, and removes old ones.

    .partial-XXXXXXXX/checkpoint-STEP   being written; never used, and deleted at the next start
    checkpoint-STEP-XXXXXXXX            ours, with its manifest; XXXXXXXX is random, so no name is used twice
    checkpoint-STEP                     Trainer's, written by another program: used if complete, never deleted

SageMaker copies the folder to S3 file by file while the job runs, and restores all of it at the next start.
"""

import json
import os
import re
import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from berth.contract.model_files import WEIGHTS
from berth.train.run_qa.checkpoints import manifest
from berth.train.run_qa.checkpoints.manifest import MANIFEST, CheckpointManifest

PARTIAL = ".partial-"
STATE = "trainer_state.json"  # the last file of a checkpoint that Trainer writes
INCOMPLETE = "checkpoint-is-incomplete.txt"  # exists while Trainer saves at a signal (trainer_jit_checkpoint.py)
_OURS = re.compile(r"checkpoint-(\d+)-[0-9a-f]{8}")
_TRAINERS = re.compile(r"checkpoint-(\d+)")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint whose files all exist with the right sizes. `manifest` is None for one of Trainer's."""

    path: Path
    step: int
    manifest: CheckpointManifest | None

    @property
    def resumable(self) -> bool:
        """Whether it has more than weights."""
        return self.manifest is None or self.manifest.resumable

    def is_of(self, job: str) -> bool:
        """Whether the job of this name wrote it."""
        return bool(job) and self.manifest is not None and self.manifest.job == job

    @property
    def recency(self) -> tuple[int, int]:
        """The sort key: the newest checkpoint has the highest. Trainer's come before ours."""
        return (self.manifest.sequence if self.manifest else 0, self.step)


@dataclass(slots=True)
class Listing:
    """The content of a checkpoint folder: `whole` checkpoints from oldest to newest, `incomplete` ones of ours and
    `unusable` folders with the reason, and `partial` folders of checkpoints that were being written.
    """

    whole: list[Checkpoint] = field(default_factory=list)
    incomplete: dict[Path, str] = field(default_factory=dict)
    unusable: dict[Path, str] = field(default_factory=dict)
    partial: list[Path] = field(default_factory=list)

    @property
    def sequence(self) -> int:
        """The highest sequence number of the whole checkpoints."""
        return max((checkpoint.recency[0] for checkpoint in self.whole), default=0)


def scan(folder: Path) -> Listing:
    """List the checkpoints of a folder, which may be missing."""
    listing = Listing()
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.is_symlink():
            continue
        if path.name.startswith(PARTIAL):
            listing.partial.append(path)
        elif not path.is_dir():
            continue
        elif match := _OURS.fullmatch(path.name):
            content = manifest.read(path)
            if content == manifest.OTHER_VERSION:
                listing.unusable[path] = manifest.OTHER_VERSION
            elif isinstance(content, str):
                listing.incomplete[path] = content
            elif fault := manifest.size_fault(path, content):
                listing.incomplete[path] = fault
            else:
                listing.whole.append(Checkpoint(path, int(match[1]), content))
        elif match := _TRAINERS.fullmatch(path.name):
            if fault := fault_of_trainers(path):
                listing.unusable[path] = fault
            else:
                listing.whole.append(Checkpoint(path, int(match[1]), None))
        elif path.name.startswith("checkpoint"):
            listing.unusable[path] = "its name is neither berth's nor Trainer's"
    listing.whole.sort(key=lambda checkpoint: checkpoint.recency)
    return listing


def fault_of_trainers(path: Path) -> str:
    """Why a folder without our manifest is not a complete checkpoint of Trainer's; empty if it is one."""
    if (path / INCOMPLETE).exists():
        return f"Trainer marked it as incomplete ({INCOMPLETE})"
    if not any((path / name).is_file() for name in WEIGHTS):
        return "its weights are missing"
    try:
        json.loads((path / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return f"{STATE} is missing or cut off"
    return ""


def complete(written: Path, target: Path, content: CheckpointManifest) -> None:
    """Make the files in `written` a checkpoint: flush them, write the manifest, then rename. Raises OSError."""
    for path in written.rglob("*"):
        _flush(path)
    last = written / MANIFEST
    last.write_text(json.dumps(asdict(content), indent=1) + "\n", encoding="utf-8")
    for path in (last, written):
        _flush(path)
    written.rename(target)
    _flush(target.parent)
    with suppress(OSError):  # deleted at the next start otherwise
        written.parent.rmdir()


def _flush(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def to_prune(checkpoints: Sequence[Path], limit: int | None, best: Path | None) -> list[Path]:
    """Which `checkpoints` (oldest first) to remove, so that `limit` are left; the newest and the best are kept."""
    if not limit or limit < 1:
        return []
    kept = {checkpoints[-1], best} if checkpoints else set()
    removable = [path for path in checkpoints if path not in kept]
    return removable[: max(0, len(checkpoints) - limit)]


def remove(paths: Collection[Path]) -> None:
    """Delete folders, ignoring errors. The manifest goes first: a half-deleted folder is not a checkpoint."""
    for path in paths:
        try:
            (path / MANIFEST).unlink(missing_ok=True)
        except OSError:
            continue
        shutil.rmtree(path, ignore_errors=True)
