"""Reads the results in a host's /opt/ml without following links that lead out of it.

A program is root in its container and may leave anything there: a link to this machine's own files, a device, a pipe
that nobody writes to. Only regular files are copied. The containers have ended by then, so nothing changes between the
check and the read.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO

_MOST_LINKS = 40
"""Longest chain of links, as in Linux (path_resolution(7))."""
_FAILURE_BYTES = 16 * 1024
"""Bytes read from /opt/ml/output/failure; SageMaker reads 1,024 characters."""
_MOST_NAMED = 10
_FILE, _FOLDER, _LINK, _NOTHING = "a file", "a folder", "a link", "nothing"
_MISSING = "missing"


@dataclass(slots=True)
class ResultFolder:
    """files: name in the folder → regular file with its content; left_out: other entries and the reasons."""

    files: dict[str, Path] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def sentence(self, folder_name: str) -> str:
        """One line about the omitted entries; empty if there are none. folder_name: for the user."""
        if not self.left_out:
            return ""
        more = len(self.left_out) - _MOST_NAMED
        named = ", ".join(self.left_out[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        return f"Not copied from {folder_name}, because only regular files inside it are: {named}."


def read_folder(root: Path, folder: str, container_path: str) -> ResultFolder:
    """The files of `folder` below `root`; container_path: the folder's path in the container.

    A link to a file inside the folder counts as that file. Other links, devices, pipes and sockets are left out. If the
    folder, or one above it, is a link or not a folder, everything is left out.
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
            target = _resolve_inside(home, PurePosixPath(shown), container_path) if path.is_symlink() else path
            if target is None:
                found.left_out.append(f"{shown!r} (a link that leads out of it)")
            elif (kind := _kind(target)) == _FILE:
                found.files[shown] = target
            else:
                found.left_out.append(f"{shown!r} ({f'a link to {kind}' if path.is_symlink() else kind})")
    return found


def folder_fault(root: Path, folder: str) -> str:
    """Why `folder` below `root` can't be read: it is missing, a link, or not a folder. Empty if it can."""
    at = root
    for part in PurePosixPath(folder).parts:
        at /= part
        kind = _kind(at)
        if kind != _FOLDER:
            shown = at.relative_to(root).as_posix()
            return _MISSING if kind == _NOTHING else f"{shown!r} itself ({kind} in place of the folder)"
    return ""


def open_regular(path: Path) -> BinaryIO:
    """Opens a regular file for reading; OSError for anything else, including a link."""
    if _kind(path) != _FILE:  # checked before opening, because opening a device may have an effect
        raise OSError(f"{path.name!r} is {_kind(path)}, not a regular file")
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def read_failure(root: Path) -> str:
    """The beginning of a host's /opt/ml/output/failure; empty if there is none."""
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


def unsafe_entries(folder: Path, container_path: str) -> Iterator[tuple[Path, str]]:
    """The entries that are not a file, a folder or a link that stays in the folder, each with its kind."""
    for at, folders, names in os.walk(folder):
        for name in [*names, *folders]:
            path = Path(at) / name
            kind = _kind(path)
            name_inside = PurePosixPath(path.relative_to(folder))
            if kind == _LINK and _resolve_inside(folder, name_inside, container_path) is None:
                yield path, "a link that leads out of it"
            elif kind not in (_FILE, _FOLDER, _LINK):
                yield path, kind


def _kind(path: Path) -> str:
    """The kind of the entry at `path`, for a sentence; links are not followed."""
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


def _resolve_inside(home: Path, name: PurePosixPath, container_path: str) -> Path | None:
    """The path to which `name` in the folder `home` leads, resolved step by step; None if it leads out of `home`.

    The absolute target of a link was made in the container, where the folder was at `container_path`.
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
        if links > _MOST_LINKS or (target.is_absolute() and not target.is_relative_to(container_path)):
            return None
        if target.is_absolute():
            at, target = [], target.relative_to(container_path)
        todo += reversed(target.parts)
    return home.joinpath(*at)
