"""Files that come onto this machine's disk whole or not at all, and what the disk refuses, as a sentence."""

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
    """A path next to `target` to write to: renamed to it where the block ends well, gone where it does not.

    Its name has this process's id, for another build may do the same at this moment. What a killed one of the same id
    has left goes first, for it may be a link to a file that is not to be written into.
    """
    path = target.with_name(f".{target.name}.{os.getpid()}")
    path.unlink(missing_ok=True)
    try:
        yield path
        path.replace(target)
    finally:
        path.unlink(missing_ok=True)


def write_private(path: Path, content: bytes) -> Path:
    """A new file that only this user may read; its path."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    return path


def exchange(one: Path, other: Path) -> None:
    """Exchanges two folders of one file system: at once on Linux, elsewhere one after the other."""
    with suppress(AttributeError):  # a system without the call
        here, both = -100, 2  # AT_FDCWD, RENAME_EXCHANGE: renameat2(2)
        if ctypes.CDLL(None).renameat2(here, os.fsencode(one), here, os.fsencode(other), both) == 0:
            return
    aside = one.with_name(f".{one.name}.{os.getpid()}")
    other.rename(aside)
    one.rename(other)
    aside.rename(one)


def link_files(paths: Sequence[Path], folder: Path, same: Callable[[Path, Path], bool]) -> list[Path]:
    """Puts files into `folder`, as hard links where the file system allows, but for those whose `same` is there; where
    they are then.
    """
    for path in paths:
        target = folder / path.name
        with explain_os_errors(folder, path.name):
            folder.mkdir(exist_ok=True)
            if target.exists() and not target.is_symlink() and same(target, path):
                continue
            with atomic_write(target) as new:
                try:
                    os.link(path.resolve(), new)  # of a link, which may lead out of `folder`, what it leads to
                except OSError:
                    shutil.copyfile(path, new)
    return [folder / path.name for path in paths]


def same_content(one: Path, other: Path) -> bool:
    return one.samefile(other) or sha256(one) == sha256(other)


def same_size(one: Path, other: Path) -> bool:
    """For wheels, of which a name says it all, which are large, and whose hash pip and uv check."""
    return one.stat().st_size == other.stat().st_size


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def explain_os_errors(folder: Path, name: str) -> Iterator[None]:
    """What the disk of `folder` refuses, where `name` is written there, as a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # no word of the disk's: requests' errors, such as of the engine, are OSErrors as well
            raise
        if error.errno in _FULL:
            raise UserError(
                f"the disk of {folder} is full, and {name} does not fit: free some room there, then run the command "
                "again."
            ) from None
        advice = "see that this user may write there"
        # What stands where the folder or one above it should be: a file, or a link to nowhere.
        blocking = [path for path in (folder, *folder.parents) if os.path.lexists(path) and not path.is_dir()]
        if isinstance(error, NotADirectoryError | FileExistsError) and blocking:
            advice = f"{blocking[0]} is no folder, so move it away or name another one"
        raise UserError(f"{name} can't be written to {folder} ({error.strerror}): {advice}.") from None
