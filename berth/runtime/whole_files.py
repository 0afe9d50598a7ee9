"""Files and folders that are written aside and then renamed, so that nobody ever sees half of one; and their locks.

A signal may kill the writer at any moment, and SageMaker uploads what is in the folders all the same. What a killed
writer leaves has a hidden name, by which `remove_leftovers` finds it.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_MARK = ".berth-partial-"


def write(path: Path, text: str) -> None:
    """Write a text file. Raises OSError, and the earlier file stays as it was."""
    part = _aside(path)
    try:
        part.write_text(text, "utf-8")
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


@contextmanager
def scratch(target: Path) -> Iterator[Path]:
    """An empty folder on the file system of `target`, to write in what is renamed to it; removed at the end."""
    part = _aside(target)
    part.mkdir(parents=True)
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of that file, which one process has at a time: until the block or the process ends. Raises
    OSError.
    """
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def remove_leftovers(folder: Path) -> None:
    """Remove what killed writers of this host left in or below a folder, once all of its writers have ended."""
    for path in list(folder.rglob(f"{_of_this_host()}*")):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _aside(path: Path) -> Path:
    return path.with_name(f"{_of_this_host()}{os.urandom(4).hex()}-{path.name}")


def _of_this_host() -> str:
    """Several hosts share their folders in the SDK's local mode."""
    return f"{_MARK}{os.uname().nodename}-"
