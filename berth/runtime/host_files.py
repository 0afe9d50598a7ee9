"""Files and folders of this host's system, such as /proc, that may be missing or unreadable."""

from pathlib import Path


def entries(folder: Path) -> list[Path]:
    """The entries of a folder; empty if it is missing or can't be read."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def read_text(path: Path) -> str:
    """The text of a file; empty if it is missing or can't be read."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
