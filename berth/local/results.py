"""What a job left below a host's /opt/ml, read without following a link that leads out of it.

A program is root in its container and may leave anything where results are expected: a link that leads to this
machine's own files, a device, a pipe that nobody writes to. Only regular files come home. The containers have ended by
then, so what was checked is what is opened.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO

_MOST_LINKS = 40
"""Of a chain, as Linux has it (path_resolution(7))."""
_FAILURE_BYTES = 16 * 1024
"""Of /opt/ml/output/failure; SageMaker itself reads 1,024 characters."""
_MOST_NAMED = 10
_FILE, _FOLDER, _LINK, _NOTHING = "a file", "a folder", "a link", "nothing"
_MISSING = "missing"


@dataclass(slots=True)
class ResultFolder:
    """files: name in the folder → the regular file that holds its content; left_out: what is no such file, and why."""

    files: dict[str, Path] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def sentence(self, of: str) -> str:
        """What was left out, as one line for the user, who knows the folder as `of`; empty if nothing was."""
        if not self.left_out:
            return ""
        more = len(self.left_out) - _MOST_NAMED
        named = ", ".join(self.left_out[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        return f"Not taken from {of}, where only files of its own may come home: {named}."


def read_folder(root: Path, folder: str, there: str) -> ResultFolder:
    """The files of `folder` below `root`, which the container knew as `there`.

    A link that leads to a file of the folder stands for that file. Every other link, devices, pipes and sockets are
    left out, and all of the folder where it is no folder itself, or one on the way to it is a link.
    """
    found = ResultFolder()
    if why := folder_fault(root, folder):
        found.left_out += [why] if why != _MISSING else []
        return found
    home = root / folder
    for at, folders, names in os.walk(home):
        here = Path(at)
        for name in sorted([*names, *(each for each in folders if (here / each).is_symlink())]):
            path = here / name
            shown = path.relative_to(home).as_posix()
            target = _resolve_inside(home, PurePosixPath(shown), there) if path.is_symlink() else path
            if target is None:
                found.left_out.append(f"{shown!r} (a link that leads out of it)")
            elif (kind := _kind(target)) == _FILE:
                found.files[shown] = target
            else:
                found.left_out.append(f"{shown!r} ({f'a link to {kind}' if path.is_symlink() else kind})")
    return found


def folder_fault(root: Path, folder: str) -> str:
    """Why `folder` below `root` is none that may be looked into; empty if it is one."""
    at = root
    for part in PurePosixPath(folder).parts:
        at /= part
        kind = _kind(at)
        if kind != _FOLDER:
            shown = at.relative_to(root).as_posix()
            return _MISSING if kind == _NOTHING else f"{shown!r} itself ({kind} in place of the folder)"
    return ""


def open_regular(path: Path) -> BinaryIO:
    """A regular file, opened for reading; OSError for anything else, and never through a link."""
    if _kind(path) != _FILE:  # before it is opened: opening a device may do something
        raise OSError(f"{path.name!r} is {_kind(path)} and no regular file")
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def read_failure(root: Path) -> str:
    """What a host wrote to /opt/ml/output/failure, as far as anybody reads it; empty where it wrote none."""
    path = root / "output/failure"
    why = folder_fault(root, "output")
    if why == _MISSING or (not why and _kind(path) == _NOTHING):
        return ""
    try:
        if why:
            raise OSError(why)
        with open_regular(path) as file:
            return file.read(_FAILURE_BYTES).decode(errors="replace").strip()
    except OSError as error:
        return f"The job's /opt/ml/output/failure is not read: {error}."


def unsafe_entries(folder: Path, there: str) -> Iterator[tuple[Path, str]]:
    """What in a folder is neither a file nor a folder nor a link that stays inside, each with what it is."""
    for at, folders, names in os.walk(folder):
        for name in [*names, *folders]:
            path = Path(at) / name
            kind = _kind(path)
            if kind == _LINK and _resolve_inside(folder, PurePosixPath(path.relative_to(folder)), there) is None:
                yield path, "a link that leads out of it"
            elif kind not in (_FILE, _FOLDER, _LINK):
                yield path, kind


def _kind(path: Path) -> str:
    """What stands at `path` itself, as a sentence calls it."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return _NOTHING
    if stat.S_ISREG(mode):
        return _FILE
    if stat.S_ISDIR(mode):
        return _FOLDER
    if stat.S_ISLNK(mode):
        return _LINK
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _resolve_inside(home: Path, name: PurePosixPath, there: str) -> Path | None:
    """Where `name` in the folder `home` leads, a step at a time and never out of it; None if it would.

    A link with an absolute target was made for the container, where the folder was `there`.
    """
    todo = list(reversed(name.parts))
    at: list[str] = []
    links = 0
    while todo:
        part = todo.pop()
        if part == "..":
            if not at:
                return None
            at.pop()
            continue
        path = home.joinpath(*at, part)
        if not path.is_symlink():
            at.append(part)
            continue
        links += 1
        target = PurePosixPath(os.readlink(path))
        if links > _MOST_LINKS or (target.is_absolute() and not target.is_relative_to(there)):
            return None
        if target.is_absolute():
            at, target = [], target.relative_to(there)
        todo += reversed(target.parts)
    return home.joinpath(*at)
