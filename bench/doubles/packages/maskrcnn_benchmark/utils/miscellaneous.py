"""A folder."""

from pathlib import Path


def mkdir(path: str) -> None:
    Path(path).mkdir(parents=True, exist_ok=True)
