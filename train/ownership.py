"""Lets others read the model that the job wrote, and hands its outputs to the owner of the mounted folders.

The image runs as root. In SageMaker's local mode /opt/ml is mounted from a person's disk, who could neither read nor
delete root's files (sagemaker-python-sdk#2647, #4764). On SageMaker itself everything is root's and nothing changes.
"""

import contextlib
import os
import stat
import time
from pathlib import Path

_FOLDERS = ("model", "output", "code")
_CHECKPOINTS = "checkpoints"
BEGAN = time.time() - 1.0
"""When the job began, for its entry imports this first thing; the kernel's stamps are a few milliseconds behind."""


def open_to_readers(folder: Path) -> None:
    """Give the files in the model folder the mode 0644 (0755 where their owner may run them), its folders 0755.

    safetensors writes weights that root alone can read (github.com/safetensors/safetensors/issues/782), model.tar.gz
    keeps that, and a server need not run as root.
    """
    for parent, folders, files in os.walk(folder):
        for entry in (Path(parent) / name for name in (*folders, *files)):
            # A file may vanish meanwhile, be another's or lie on a mount that does not allow it.
            with contextlib.suppress(OSError):
                mode = entry.lstat().st_mode
                runs = stat.S_ISDIR(mode) or mode & stat.S_IXUSR
                wanted = 0o755 if runs else 0o644
                if (stat.S_ISDIR(mode) or stat.S_ISREG(mode)) and mode & 0o777 != wanted:
                    entry.chmod(mode & 0o7000 | wanted)


def hand_over(root: Path) -> int | None:
    """Give files of root below model, output and code to the owner of the mounts, and of those below checkpoints, where
    he may keep what others wrote, the ones that this job wrote; returns his uid, None if nothing was to do.
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
    _give_new(root / _CHECKPOINTS, *owner)
    return owner[0]


def _give_new(folder: Path, uid: int, gid: int) -> None:
    if not folder.is_dir() or folder.is_symlink():
        return
    for parent, folders, files in os.walk(folder, topdown=False):
        for entry in (Path(parent) / name for name in (*folders, *files)):
            with contextlib.suppress(OSError):
                # What is new in a folder changes the folder: one that holds older files of root's was there before.
                if entry.lstat().st_ctime >= BEGAN and not _holds_roots(entry):
                    _give(entry, uid, gid)
    if not _holds_roots(folder):
        _give(folder, uid, gid)


def _holds_roots(path: Path) -> bool:
    if path.is_symlink() or not path.is_dir():
        return False
    return any(entry.lstat().st_uid == 0 for entry in path.iterdir())


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
