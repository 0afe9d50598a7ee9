"""What one process makes and all use: the workers of a server start together, and want the same files."""

import fcntl
from collections.abc import Callable
from pathlib import Path


def make_once(folder: Path, make: Callable[[], None]) -> None:
    """Have `make` fill `folder`, unless it was filled by this or another process, for which others wait. What `make`
    raises leaves the folder as unfilled.
    """
    filled = folder.with_suffix(".filled")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed, or its process ends
        if not filled.is_file():
            make()
            filled.touch()
