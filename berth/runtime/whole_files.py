"""Writes files and folders atomically: under a temporary name, then renamed; and file locks.

A signal may kill the writer at any moment, and SageMaker uploads the folders anyway. A killed writer leaves a hidden
file or folder, which `remove_leftovers` removes.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_MARK = ".berth-partial-"


def write(path: Path, text: str) -> None:
    """Write a text file atomically. If it raises OSError, the previous file is unchanged."""
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
    """A temporary folder on the file system of `target`, for files that will be renamed to it; removed at the end."""
    part = _aside(target)
    part.mkdir(parents=True)
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file until the block or the process ends. Raises OSError."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def remove_leftovers(folder: Path) -> None:
    """Remove what killed writers of this host left below a folder. Call it after all its writers have ended."""
    for path in list(folder.rglob(f"{_host_prefix()}*")):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _aside(path: Path) -> Path:
    return path.with_name(f"{_host_prefix()}{os.urandom(4).hex()}-{path.name}")


def _host_prefix() -> str:
    """The prefix of temporary names. It includes the host, because hosts share folders in the SDK's local mode."""
    return f"{_MARK}{os.uname().nodename}-"
