"""Lets others read the model that the job wrote, and hands its outputs to the owner of the mounted folders.

The image runs as root. In SageMaker's local mode /opt/ml is mounted from a person's disk, who could neither read nor
delete root's files (sagemaker-python-sdk#2647, #4764). On SageMaker itself everything is root's and nothing changes.
"""

import contextlib
import os
import stat
from pathlib import Path

_FOLDERS = ("model", "output", "code", "checkpoints")


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
    """Give files of root below these folders to the owner of the mounts; returns the uid, None if nothing was to do."""
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
