"""The checkpoint folder: what lies in it, how a checkpoint gets there whole, and which of them stay.

    .partial-XXXXXXXX/checkpoint-STEP   being written; never a checkpoint, and gone at the next start
    checkpoint-STEP-XXXXXXXX            ours, with its manifest; a name is never written twice
    checkpoint-STEP                     Trainer's own, from elsewhere: used if whole, never deleted

SageMaker copies the folder to S3 file by file while the job runs, and brings everything back at the next start.
"""

import json
import os
import re
import secrets
import shutil
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from berth.contract.model_files import WEIGHTS
from berth.train.run_qa.checkpoints import manifest
from berth.train.run_qa.checkpoints.manifest import MANIFEST, CheckpointManifest

ASIDE = ".partial-"
STATE = "trainer_state.json"  # of its own checkpoints Trainer writes it last
INCOMPLETE = "checkpoint-is-incomplete.txt"  # there while Trainer saves at a signal (trainer_jit_checkpoint.py)
OF_ANOTHER_VERSION = f"{MANIFEST} is of another version of the kit"
_OURS = re.compile(r"checkpoint-(\d+)-[0-9a-f]{8}")
_TRAINERS = re.compile(r"checkpoint-(\d+)")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One that is whole, as far as sizes tell. `manifest` is None for Trainer's own."""

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
    def age(self) -> tuple[int, int]:
        """By which they are sorted: that of the newest is highest. Trainer's own come before ours."""
        return (self.manifest.sequence if self.manifest else 0, self.step)


@dataclass(slots=True)
class Listing:
    """What lies in a checkpoint folder: `whole` from oldest to newest; `torn` and `passed_over` with the reason."""

    whole: list[Checkpoint] = field(default_factory=list)
    torn: dict[Path, str] = field(default_factory=dict)
    passed_over: dict[Path, str] = field(default_factory=dict)
    aside: list[Path] = field(default_factory=list)

    @property
    def sequence(self) -> int:
        """The highest of all."""
        return max((each.age[0] for each in self.whole), default=0)


def look(folder: Path) -> Listing:
    """What lies in a folder; it may be missing."""
    found = Listing()
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.is_symlink():
            continue
        if path.name.startswith(ASIDE):
            found.aside.append(path)
        elif not path.is_dir():
            continue
        elif match := _OURS.fullmatch(path.name):
            content = manifest.read(path)
            if content is None and not manifest.is_cut_off(path):
                found.passed_over[path] = OF_ANOTHER_VERSION
            elif fault := manifest.missing(path, content) if content else f"{MANIFEST} is missing or cut off":
                found.torn[path] = fault
            else:
                found.whole.append(Checkpoint(path, int(match[1]), content))
        elif match := _TRAINERS.fullmatch(path.name):
            if fault := fault_of_trainers(path):
                found.passed_over[path] = fault
            else:
                found.whole.append(Checkpoint(path, int(match[1]), None))
        elif path.name.startswith("checkpoint"):
            found.passed_over[path] = "its name is neither the kit's nor Trainer's"
    found.whole.sort(key=lambda each: each.age)
    return found


def fault_of_trainers(path: Path) -> str:
    """What keeps a folder without our manifest from being a checkpoint of Trainer's; empty if nothing."""
    if (path / INCOMPLETE).exists():
        return f"Trainer calls it incomplete ({INCOMPLETE})"
    if not any((path / name).is_file() for name in WEIGHTS):
        return "its weights are missing"
    try:
        json.loads((path / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return f"{STATE} is missing or cut off"
    return ""


def has_optimizer(path: Path) -> bool:
    """Whether a checkpoint of Trainer's own has what Trainer goes on with; without one of both it takes neither."""
    return any(path.glob("optimizer*")) and (path / "scheduler.pt").is_file()


def new_name(step: int) -> str:
    """A name that no checkpoint has had."""
    return f"checkpoint-{step}-{secrets.token_hex(4)}"


def aside_of(folder: Path, name: str) -> Path:
    """Where the checkpoint that is to be called `name` is written: in a folder of its own, on the same file system."""
    return folder / f"{ASIDE}{name[-8:]}"


def complete(written: Path, target: Path, content: CheckpointManifest) -> None:
    """Make a checkpoint of the files in `written`: onto the disk, then the manifest, then the name. Raises OSError."""
    for path in written.rglob("*"):
        _onto_disk(path)
    last = written / MANIFEST
    last.write_text(manifest.text_of(content), encoding="utf-8")
    for path in (last, written):
        _onto_disk(path)
    written.rename(target)
    _onto_disk(target.parent)
    with suppress(OSError):  # what is left goes at the next start
        written.parent.rmdir()


def _onto_disk(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def superfluous(checkpoints: Sequence[Path], limit: int | None, best: Path | None) -> list[Path]:
    """Those to remove of checkpoints, from oldest to newest, so that `limit` stay: the newest, and the best."""
    if not limit or limit < 1:
        return []
    stay = {checkpoints[-1], best} if checkpoints else set()
    removable = [path for path in checkpoints if path not in stay]
    return removable[: max(0, len(checkpoints) - limit)]


def remove(paths: Collection[Path]) -> None:
    """Delete folders as far as the disk lets us; the manifest first, so that one cut off here is no checkpoint."""
    for path in paths:
        try:
            (path / MANIFEST).unlink(missing_ok=True)
        except OSError:
            continue
        shutil.rmtree(path, ignore_errors=True)
