"""Atomic writes, links and hashes of files, and errors of the disk as sentences."""

import ctypes
import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from berth.common.errors import UserError

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def atomic_write(target: Path) -> Iterator[Path]:
    """A path next to `target` to write to. It is renamed to `target` when the block ends, and deleted if it raises.

    Its name contains this process's ID, because another build may write the same file. A file of this name that a
    killed process left is removed first: it may be a link to a file that must not be overwritten.
    """
    path = target.with_name(f".{target.name}.{os.getpid()}")
    path.unlink(missing_ok=True)
    try:
        yield path
        path.replace(target)
    finally:
        path.unlink(missing_ok=True)


def write_private(path: Path, content: bytes) -> Path:
    """Writes a new file that only this user may read, and returns its path."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    return path


def exchange(one: Path, other: Path) -> None:
    """Exchanges two folders of one file system: atomically if the system can (Linux), else by three renames."""
    with suppress(AttributeError):  # no renameat2 on this system
        here, both = -100, 2  # AT_FDCWD, RENAME_EXCHANGE: renameat2(2)
        if ctypes.CDLL(None).renameat2(here, os.fsencode(one), here, os.fsencode(other), both) == 0:
            return
    aside = one.with_name(f".{one.name}.{os.getpid()}")
    other.rename(aside)
    one.rename(other)
    aside.rename(one)


def link_files(paths: Sequence[Path], folder: Path, same: Callable[[Path, Path], bool]) -> list[Path]:
    """Puts files into `folder`, as hard links if the file system allows, and returns their paths there. A file for
    which `same(existing, new)` is true is kept.
    """
    for path in paths:
        target = folder / path.name
        with explain_os_errors(folder, path.name):
            folder.mkdir(exist_ok=True)
            if target.exists() and not target.is_symlink() and same(target, path):
                continue
            with atomic_write(target) as new:
                try:
                    os.link(path.resolve(), new)  # the file itself, if `path` is a symbolic link
                except OSError:
                    shutil.copyfile(path, new)
    return [folder / path.name for path in paths]


def same_content(one: Path, other: Path) -> bool:
    return one.samefile(other) or sha256(one) == sha256(other)


def same_size(one: Path, other: Path) -> bool:
    """For wheels: they are large, their name identifies them, and pip and uv check their hash."""
    return one.stat().st_size == other.stat().st_size


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def explain_os_errors(folder: Path, name: str) -> Iterator[None]:
    """Turns the OSError of writing `name` to `folder` into UserError."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # not of the disk: requests' errors are OSErrors, too
            raise
        if error.errno in _FULL:
            raise UserError(
                f"the disk of {folder} is full, and {name} does not fit: free some room there, then run the command "
                "again."
            ) from None
        advice = "check that this user may write there"
        # A file or a dangling link in place of the folder or of one above it.
        blocking = [path for path in (folder, *folder.parents) if os.path.lexists(path) and not path.is_dir()]
        if isinstance(error, NotADirectoryError | FileExistsError) and blocking:
            advice = f"{blocking[0]} is not a folder, so move it away or name another one"
        raise UserError(f"{name} can't be written to {folder} ({error.strerror}): {advice}.") from None
