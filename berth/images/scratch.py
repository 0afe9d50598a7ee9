"""Temporary folders that live as long as one command. If SIGKILL leaves one, no process holds its lock any more, so the
next command that makes such a folder removes it.
"""

import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from berth.common.console import say
from berth.common.files import explain_os_errors
from berth.images.pins import pins

PROOFS, NEW_LOCKS, SECRETS, DRY_RUNS = "berth-proof-", ".locks-", "secrets", "dry-run-"
"""Prefixes of folder names: proofs, in the system's temporary folder; new locks, next to the old ones; a build's
secrets, in the cache; and secrets that a dry run leaves there for the command that it prints.
"""
_LOCK_NAME = ".held"
_YOUNG_S = 24 * 3600
"""A folder without a lock that is younger than this is not removed: a command may be about to lock it."""
_PATIENCE_S = 10.0


@contextmanager
def scratch_folder(prefix: str, parent: Path | None = None, stopping: str = "") -> Iterator[Path]:
    """A folder for this user only, removed at the end. Removes the folders of killed commands first. Prints `stopping`
    if the command is interrupted, because the removal may take long; a second signal can't interrupt the removal.

    Main thread only, like all signal handlers.
    """
    parent = parent or Path(tempfile.gettempdir())
    handlers: dict[signal.Signals, Any] = {}
    with explain_os_errors(parent, "a temporary folder"):
        parent.mkdir(parents=True, exist_ok=True)
        for stale in _stale(parent, prefix):
            remove(stale)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        with (folder / f"{_LOCK_NAME}.new").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.rename(lock.name, folder / _LOCK_NAME)  # renamed only when locked, so nobody sees it unlocked
            yield folder
    except (KeyboardInterrupt, SystemExit):
        for each in (signal.SIGINT, signal.SIGTERM):
            handlers[each] = signal.signal(each, signal.SIG_IGN)
        if stopping:
            say(stopping)
        raise
    finally:
        remove(folder)
        for each, handler in handlers.items():
            signal.signal(each, handler)


def stale_folders(locks: Path) -> list[Path]:
    """Folders that killed commands of this user left: environments of proofs, unfinished locks next to the folder
    `locks`, secrets; and those of dry runs, if older than a day.
    """
    places = (
        (Path(tempfile.gettempdir()), PROOFS),
        (locks.parent, NEW_LOCKS),
        (pins.CACHE, SECRETS),
        (pins.CACHE, DRY_RUNS),
    )
    return [folder for parent, prefix in places for folder in _stale(parent, prefix)]


def _stale(parent: Path, prefix: str) -> list[Path]:
    found = sorted(parent.glob(f"{prefix}*"))
    return [each for each in found if each.is_dir() and not each.is_symlink() and _owner_is_gone(each)]


def remove(folder: Path) -> None:
    """Removes a folder; retries for some seconds, because a killed program may still be writing into it."""
    until = time.monotonic() + _PATIENCE_S
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists() and time.monotonic() > until:
            say(f"{folder} could not be removed; remove it by hand.")
            return
        time.sleep(0.1 if folder.exists() else 0)


def _owner_is_gone(folder: Path) -> bool:
    status = folder.lstat()
    try:
        if status.st_uid != os.getuid():
            return False
        with (folder / _LOCK_NAME).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    except FileNotFoundError:  # the folder is gone, or has no lock
        return folder.exists() and time.time() - status.st_mtime > _YOUNG_S
    except OSError:  # a BlockingIOError if a process holds the lock
        return False
