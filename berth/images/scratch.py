"""Temporary folders that live as long as one command. One that SIGKILL left is found by its lock, which no process
holds any more, and the next command that makes such a folder removes it.
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
from types import FrameType
from typing import IO

from berth.common.console import say
from berth.common.files import explain_os_errors
from berth.images.pins import pins

PROOFS, NEW_LOCKS, SECRETS, DRY_RUNS = "berth-proof-", ".locks-", "secrets", "dry-run-"
"""How the names of folders begin: of proofs, in the system's folder; of new locks, next to the old; of a build's
secrets, in the cache; and of those that a dry run leaves there for the line that it prints.
"""
_HELD = ".held"
_YOUNG_S = 24 * 3600
"""Seconds in which a folder without a lock may be one that is just being made."""
_PATIENCE_S = 10.0


@contextmanager
def scratch_folder(prefix: str, parent: Path | None = None, stopping: str = "") -> Iterator[Path]:
    """A folder for this user only, which is gone at the end; `stopping` is printed if the command is interrupted,
    because that may take long. Those of killed commands go first.
    """
    parent = parent or Path(tempfile.gettempdir())
    with explain_os_errors(parent, "a temporary folder"):
        parent.mkdir(parents=True, exist_ok=True)
        for left in _stale(parent, prefix):
            remove(left)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        with (folder / f"{_HELD}.new").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.rename(lock.name, folder / _HELD)  # never to be seen without its owner
            yield folder
    except (KeyboardInterrupt, SystemExit):
        if stopping:
            say(stopping)
        raise
    finally:
        remove(folder)


@contextmanager
def one_stop() -> Iterator[None]:
    """While entered, only the first Ctrl-C or SIGTERM counts: a second would strike what cleans up after it.

    For the main thread, as all handlers of signals.
    """
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    heard = {each: handler for each, handler in before.items() if callable(handler)}

    def stop(number: int, frame: FrameType | None) -> None:
        for each in heard:
            signal.signal(each, signal.SIG_IGN)
        heard[signal.Signals(number)](number, frame)

    try:
        for each in heard:
            signal.signal(each, stop)
        yield
    finally:
        for each, handler in heard.items():
            signal.signal(each, handler)


def stale_folders(locks: Path) -> list[Path]:
    """What killed commands of this user left: environments of proofs, half-made locks next to the folder `locks`,
    secrets; and what dry runs left more than a day ago.
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
    """Tries again for some seconds: a program that was just killed may still have written into it."""
    until = time.monotonic() + _PATIENCE_S
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists() and time.monotonic() > until:
            say(f"{folder} could not be removed: remove it by hand.")
            return
        time.sleep(0.1 if folder.exists() else 0)


def _owner_is_gone(folder: Path) -> bool:
    facts = folder.lstat()
    try:
        if facts.st_uid != os.getuid():
            return False
        with (folder / _HELD).open() as lock:
            return _is_free(lock)
    except FileNotFoundError:  # it went meanwhile, or has no lock
        return folder.exists() and time.time() - facts.st_mtime > _YOUNG_S
    except OSError:
        return False


def _is_free(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
