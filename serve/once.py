"""Files that one process makes and all use: a server's workers start together and need the same files."""

from collections.abc import Callable
from pathlib import Path

from berth.runtime.whole_files import locked


def make_once(folder: Path, make: Callable[[], None]) -> None:
    """Call `make` to fill `folder`, unless a process has already filled it. Other processes wait meanwhile. If `make`
    raises an exception, the next caller tries again.
    """
    filled = folder.with_suffix(".filled")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock")):
        if not filled.is_file():
            make()
            filled.touch()
