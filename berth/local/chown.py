"""Gives files that a run's containers wrote as root to the caller, with a container, because only root may do that."""

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from docker import DockerClient
from docker.types import Mount

from berth.common.containers import Access, run_once

_MOUNTED_AT = "/handed-over"


@dataclass(frozen=True, slots=True)
class FolderSnapshot:
    """The state of a user's folder before a run: the time, and the inodes that belonged to root."""

    folder: Path
    taken_at: float
    inodes_of_root: frozenset[int]

    @classmethod
    def take(cls, folder: Path) -> "FolderSnapshot":
        """The folder's current state."""
        # A second earlier, because the kernel's clock for file times is a few milliseconds behind.
        return cls(folder, time.time() - 1.0, frozenset(_inodes_of_root(folder)))


def chown_folder(client: DockerClient, image: str, folder: Path) -> None:
    """Gives all files in `folder`, which a run made, to the caller."""
    if os.getuid() == 0 or all(path.lstat().st_uid == os.getuid() for path in folder.rglob("*")):
        return
    _run_as_root(client, image, folder, ["chown", "-hR", _caller(), _MOUNTED_AT])


def chown_new_files(client: DockerClient, image: str, before: FolderSnapshot) -> None:
    """Gives the files that a run's containers wrote as root into a user's folder to the user, and no others."""
    if os.getuid() == 0 or _inodes_of_root(before.folder) <= before.inodes_of_root:
        return
    others = [word for inode in sorted(before.inodes_of_root) for word in ("!", "-inum", str(inode))]
    # -h changes a link itself, not its target, and find follows no links.
    new = ["find", _MOUNTED_AT, "-mindepth", "1", "-user", "0", "-newerct", f"@{before.taken_at:.3f}", *others]
    _run_as_root(client, image, before.folder, [*new, "-exec", "chown", "-h", _caller(), "{}", "+"])


def _inodes_of_root(folder: Path) -> set[int]:
    inodes = set()
    for at, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(os.path.join(at, name))
                if status.st_uid == 0:
                    inodes.add(status.st_ino)
    return inodes


def _caller() -> str:
    return f"{os.getuid()}:{os.getgid()}"


def _run_as_root(client: DockerClient, image: str, folder: Path, command: Sequence[str]) -> None:
    run_once(client, image, command, Access([Mount(_MOUNTED_AT, str(folder), type="bind")]))
