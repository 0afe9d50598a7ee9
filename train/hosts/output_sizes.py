"""A warning about checkpoints in the model folder.

SageMaker packs and uploads /opt/ml/model when the job has ended. It uploads /opt/ml/checkpoints while the job runs, if
the job has a checkpoint_s3_uri.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_LISTED_FOLDERS = 3


def megabytes(count: int) -> str:
    """A number of bytes as text: `0.1 MB`, `1,234 MB`."""
    return f"{count / 1e6:.1f} MB" if count < 100e6 else f"{count / 1e6:,.0f} MB"


def sizes(folder: Path) -> Iterator[int]:
    """The size of each regular file below a folder; links are not followed."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # deleted meanwhile
                status = os.lstat(os.path.join(parent, name))
                if stat.S_ISREG(status.st_mode):
                    yield status.st_size


def checkpoints_in(model: Path) -> list[Path]:
    """All folders below the model folder that are named like Trainer's checkpoints."""
    checkpoints: list[Path] = []
    for parent, folders, _ in os.walk(model):
        names = sorted(name for name in folders if name.startswith("checkpoint-"))
        checkpoints += [Path(parent, name) for name in names]
        folders[:] = [name for name in folders if name not in names]
    return checkpoints


def checkpoints_warning(root: Path) -> str:
    """Warns about checkpoints in the model folder; empty if it has none."""
    model = root / "model"
    folders = checkpoints_in(model)
    if not folders:
        return ""
    within = megabytes(sum(sum(sizes(folder)) for folder in folders))
    names = ", ".join(str(folder.relative_to(model)) for folder in folders[:_LISTED_FOLDERS])
    more = f" and {len(folders) - _LISTED_FOLDERS} more" if len(folders) > _LISTED_FOLDERS else ""
    return (
        f"{within} of the {megabytes(sum(sizes(model)))} in {model} are checkpoints ({names}{more}): SageMaker packs "
        "and uploads them with the model, which may take an hour or fail; have the program write them to "
        f"{root / 'checkpoints'} (output_dir of transformers' Trainer), and give the estimator a checkpoint_s3_uri."
    )
