"""Sizes of a job's outputs, and a warning about checkpoints in the model folder.

SageMaker packs and uploads /opt/ml/model and /opt/ml/output/data when the job has ended. It uploads /opt/ml/checkpoints
while the job runs, if the job has a checkpoint_s3_uri.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

_LISTED_FOLDERS = 3


@dataclass(frozen=True, slots=True)
class Size:
    """Number and total size of the regular files below a folder; links are not followed."""

    files: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        return f"{megabytes(self.bytes)} ({self.files} {'file' if self.files == 1 else 'files'})"


def megabytes(count: int) -> str:
    """A number of bytes as text: `0.1 MB`, `1,234 MB`."""
    return f"{count / 1e6:.1f} MB" if count < 100e6 else f"{count / 1e6:,.0f} MB"


def size(folder: Path) -> Size:
    """The size of a folder's files; 0 if it is missing."""
    files = total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(parent, name))
            except OSError:
                continue  # deleted meanwhile
            if stat.S_ISREG(status.st_mode):
                files += 1
                total += status.st_size
    return Size(files, total)


def checkpoints_in(model: Path) -> list[Path]:
    """All folders below the model folder that are named like Trainer's checkpoints."""
    checkpoints: list[Path] = []
    for parent, folders, _ in os.walk(model):
        names = sorted(name for name in folders if name.startswith("checkpoint-"))
        checkpoints += [Path(parent, name) for name in names]
        folders[:] = [name for name in folders if name not in names]
    return checkpoints


def sizes_line(root: Path) -> str:
    """`outputs: model 90.9 MB (7 files), output/data 0.2 MB (1 file)`; empty for a host that leaves nothing."""
    sizes = {name: size(root / name) for name in ("model", "output/data")}
    if not any(folder.files for folder in sizes.values()):
        return ""
    return "outputs: " + ", ".join(f"{name} {folder}" for name, folder in sizes.items())


def checkpoints_warning(root: Path) -> str:
    """Warns about checkpoints in the model folder; empty if it has none."""
    model = root / "model"
    folders = checkpoints_in(model)
    if not folders:
        return ""
    within = megabytes(sum(size(folder).bytes for folder in folders))
    names = ", ".join(str(folder.relative_to(model)) for folder in folders[:_LISTED_FOLDERS])
    more = f" and {len(folders) - _LISTED_FOLDERS} more" if len(folders) > _LISTED_FOLDERS else ""
    return (
        f"{within} of the {megabytes(size(model).bytes)} in {model} are checkpoints ({names}{more}): SageMaker packs "
        "and uploads them with the model, which may take an hour or fail; have the program write them to "
        f"{root / 'checkpoints'} (output_dir of transformers' Trainer), and give the estimator a checkpoint_s3_uri."
    )
