"""The output folders of a run: checked before the work, created, and locked while it runs.

Two runs that write to one folder would overwrite each other's model.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from berth.common.errors import UserError
from berth.local.paths import refuse_address

LOCK_FILE = ".berth-run.lock"
"""A file in the folder while a run writes there. The kernel releases its lock even if the process is killed."""


def check_writable(folder: Path) -> Path:
    """The folder's absolute path; UserError if it can't be created or written to. Creates nothing."""
    refuse_address(folder)
    absolute = folder.absolute()
    existing = next(path for path in (absolute, *absolute.parents) if os.path.lexists(path))
    if not existing.is_dir():
        raise UserError(f"{folder} can't be made ({existing} is no folder): choose another.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"you may not write to {existing}: choose another.")
    return absolute


def make_folder(folder: Path) -> None:
    """Creates a folder for results, and missing parents."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} can't be made ({error.strerror}): choose another.") from None


@contextlib.contextmanager
def lock_folders(folders: Sequence[Path]) -> Iterator[None]:
    """Locks `folders` against other runs for a `with` block; UserError if another run writes to one."""
    with contextlib.ExitStack() as stack:
        for folder in {each.resolve(): each for each in folders}.values():
            stack.enter_context(_locked(folder))
        yield


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    path = folder / LOCK_FILE
    while True:
        try:
            held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UserError(
                f"{path}, which keeps other runs out, can't be made ({error.strerror}): remove it, or choose another "
                "folder."
            ) from None
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            other = os.pread(held, 20, 0).decode(errors="replace").strip() or "unknown"
            os.close(held)
            raise UserError(
                f"Another run (process {other}) writes to {folder}: wait for its end, or choose another folder."
            ) from None
        if _is_still(path, held):
            break
        os.close(held)  # the previous run removed its file after we had opened it and before we locked it
    try:
        os.ftruncate(held, 0)
        os.pwrite(held, str(os.getpid()).encode(), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            if _is_still(path, held):
                path.unlink()
        os.close(held)


def _is_still(path: Path, held: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(held))
    except FileNotFoundError:
        return False
