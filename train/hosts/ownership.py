"""Makes the model readable for everybody, and hands the outputs to the owner of the mounted folders.

The image runs as root. In SageMaker's local mode /opt/ml is mounted from a user's disk, and that user could neither
read nor delete root's files (sagemaker-python-sdk#2647, #4764). On SageMaker itself root owns all, so no owner changes.
"""

import contextlib
import os
import stat
from pathlib import Path

_FOLDERS = ("model", "output", "code", "checkpoints")


def open_to_readers(folder: Path) -> None:
    """Set the mode of the model's files to 0644 (0755 if their owner may execute them) and of its folders to 0755.

    safetensors writes weights that only root can read (github.com/safetensors/safetensors/issues/782), model.tar.gz
    keeps the mode, and a server may run as another user.
    """
    for parent, folders, files in os.walk(folder):
        for entry in (Path(parent) / name for name in (*folders, *files)):
            # A file may be deleted meanwhile, belong to another user, or be on a mount that forbids this.
            with contextlib.suppress(OSError):
                mode = entry.lstat().st_mode
                runs = stat.S_ISDIR(mode) or mode & stat.S_IXUSR
                wanted = 0o755 if runs else 0o644
                if (stat.S_ISDIR(mode) or stat.S_ISREG(mode)) and mode & 0o777 != wanted:
                    entry.chmod(mode & 0o7000 | wanted)


def hand_over(root: Path) -> int | None:
    """Give root's files in the output folders to the owner of the mounts; returns its uid, None if there is none."""
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
    """uid and gid of the first folder of the job that root does not own; None if root owns all."""
    for name in ("model", "output", "output/data", "input/config", "input", "."):
        with contextlib.suppress(OSError):
            status = (root / name).stat()
            if status.st_uid != 0:
                return status.st_uid, status.st_gid
    return None


def _give(path: Path, uid: int, gid: int) -> None:
    # A file may be deleted meanwhile, or the mount may forbid this. Ignore it: the job's result does not depend on it.
    with contextlib.suppress(OSError):
        if path.lstat().st_uid == 0:
            os.chown(path, uid, gid, follow_symlinks=False)
