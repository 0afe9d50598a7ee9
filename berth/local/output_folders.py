"""The output folders of a run: checked before the work, created, and held by one run at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from berth.common.errors import UserError
from berth.local.paths import refuse_address


def check_writable(folder: Path) -> Path:
    """The folder's absolute path; UserError if it can't be created or written to. Creates nothing."""
    refuse_address(folder)
    absolute = folder.absolute()
    existing = next(path for path in (absolute, *absolute.parents) if os.path.lexists(path))
    if not existing.is_dir():
        raise UserError(f"{folder} can't be made ({existing} is not a folder): choose another.")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"you may not write to {existing}: choose another.")
    return absolute


def make_folder(folder: Path) -> None:
    """Creates a folder for results, and missing parents."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} can't be made ({error.strerror}): choose another.") from None


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Holds an existing folder during the block. UserError if another run holds it; the kernel frees it at a run's end.

    A file system without locks, such as some network drives, does not stop the run.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another run writes its results to {folder}: wait until it ends, or choose another --output."
            ) from None
        except OSError:
            pass
        yield
    finally:
        os.close(descriptor)
