"""The folders that a run writes its results to: checked before the work, made, and locked while it runs.

Two runs that write to one folder would take each other's model away.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from berth.common.errors import UserError
from berth.local.paths import refuse_address

LOCK_FILE = ".berth-run.lock"
"""In the folder while a run writes there. Locked by its process, so one that was killed holds nothing back."""


def check_writable(folder: Path) -> Path:
    """The folder's absolute path; refused if it could not be made or written to after the work. Makes nothing."""
    refuse_address(folder)
    whole = folder.absolute()
    there = next(each for each in (whole, *whole.parents) if os.path.lexists(each))
    if not there.is_dir():
        raise UserError(f"{folder} can't be made ({there} is no folder): choose another.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"{there} is not yours to write to: choose another.")
    return whole


def make_folder(folder: Path) -> None:
    """Makes a folder for results, and those above it, if they are not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} can't be made ({error.strerror}): choose another.") from None


@contextlib.contextmanager
def lock_folders(folders: Sequence[Path]) -> Iterator[None]:
    """Keeps every other run out of `folders` for the length of a `with` block; UserError where one writes there."""
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
        os.close(held)  # the run before removed its file between our opening and our locking it
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
