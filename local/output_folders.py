"""One run at a time per folder of results: two that write to one would take each other's model away."""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from berth.common.errors import UserError

LOCK = ".berth-run.lock"
"""In the folder while a run writes there. Locked by its process, so one that was killed holds nothing back."""


@contextlib.contextmanager
def exclusive(folders: Sequence[Path]) -> Iterator[None]:
    """Keeps every other run out of `folders` for the length of a `with` block; UserError where one is at it."""
    with contextlib.ExitStack() as stack:
        for folder in {each.resolve(): each for each in folders}.values():
            stack.enter_context(_locked(folder))
        yield


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    path = folder / LOCK
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
