"""Files that a run's containers wrote as root, made the caller's own: by a container, for only root may do that."""

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
    """A folder of the user's own before a run: when, and which of its files (inodes) were root's then."""

    folder: Path
    taken_at: float
    of_root: frozenset[int]

    @classmethod
    def take(cls, folder: Path) -> "FolderSnapshot":
        """As it is now."""
        # A second earlier: the kernel stamps files by a clock that ticks a few milliseconds behind.
        return cls(folder, time.time() - 1.0, frozenset(_inodes_of_root(folder)))


def chown_folder(client: DockerClient, image: str, folder: Path) -> None:
    """Makes all files in `folder`, which a run made, the caller's."""
    if os.getuid() == 0 or all(path.lstat().st_uid == os.getuid() for path in folder.rglob("*")):
        return
    _run_as_root(client, image, folder, ["chown", "-hR", _caller(), _MOUNTED_AT])


def chown_new_files(client: DockerClient, image: str, before: FolderSnapshot) -> None:
    """Makes what a run's containers wrote as root into a folder of the user's own the user's, and nothing else."""
    if os.getuid() == 0 or _inodes_of_root(before.folder) <= before.of_root:
        return
    others = [word for inode in sorted(before.of_root) for word in ("!", "-inum", str(inode))]
    # A link itself is changed (-h), never what it leads to, and find follows none.
    new = ["find", _MOUNTED_AT, "-mindepth", "1", "-user", "0", "-newerct", f"@{before.taken_at:.3f}", *others]
    _run_as_root(client, image, before.folder, [*new, "-exec", "chown", "-h", _caller(), "{}", "+"])


def _inodes_of_root(folder: Path) -> set[int]:
    found = set()
    for at, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(os.path.join(at, name))
                if status.st_uid == 0:
                    found.add(status.st_ino)
    return found


def _caller() -> str:
    return f"{os.getuid()}:{os.getgid()}"


def _run_as_root(client: DockerClient, image: str, folder: Path, command: Sequence[str]) -> None:
    run_once(client, image, command, Access([Mount(_MOUNTED_AT, str(folder), type="bind")]))
