"""Hands what the job wrote to the owner of the mounted folders.

The image runs as root. In SageMaker's local mode /opt/ml is mounted from a person's disk, who could neither read nor
delete root's files (sagemaker-python-sdk#2647, #4764). On SageMaker itself everything is root's and nothing changes.
"""

import contextlib
import os
from pathlib import Path

_FOLDERS = ("model", "output", "checkpoints", "code")


def hand_over(root: Path) -> int | None:
    """Give files of root below model, output, checkpoints and code to the owner of the mounts; returns his uid, None if
    nothing was to do.
    """
    if os.geteuid() != 0:
        return None
    owner = find_owner(root)
    if owner is None:
        return None
    for name in _FOLDERS:
        folder = root / name
        if folder.is_dir() and not folder.is_symlink():
            _give(folder, *owner)
            for parent, folders, files in os.walk(folder):
                for entry in (*folders, *files):
                    _give(Path(parent) / entry, *owner)
    return owner[0]


def find_owner(root: Path) -> tuple[int, int] | None:
    """uid and gid of the first folder of the job that is not root's; None if all are."""
    for name in ("model", "output", "output/data", "input/config", "input", "."):
        with contextlib.suppress(OSError):
            status = (root / name).stat()
            if status.st_uid != 0:
                return status.st_uid, status.st_gid
    return None


def _give(path: Path, uid: int, gid: int) -> None:
    # A file may vanish meanwhile, or the mount may not allow it: the job's result does not hang on that.
    with contextlib.suppress(OSError):
        if path.lstat().st_uid == 0:
            os.chown(path, uid, gid, follow_symlinks=False)
