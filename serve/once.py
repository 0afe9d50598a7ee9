"""What one process makes and all use: the workers of a server start together, and want the same files."""

from collections.abc import Callable
from pathlib import Path

from berth.runtime.whole_files import locked


def make_once(folder: Path, make: Callable[[], None]) -> None:
    """Have `make` fill `folder`, unless it was filled by this or another process, for which others wait. What `make`
    raises leaves the folder as unfilled.
    """
    filled = folder.with_suffix(".filled")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock")):
        if not filled.is_file():
            make()
            filled.touch()
