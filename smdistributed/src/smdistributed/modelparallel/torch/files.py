"""Writes files and folders atomically: under a temporary name next to the target, then renamed."""

import contextlib
import os
import pickle
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


def write(value: Any, path: Path, *, pickle_module: Any = pickle, pickle_protocol: int = 2) -> None:
    """torch.save, atomically, even if several processes write the file."""
    write_all({path: value}, pickle_module=pickle_module, pickle_protocol=pickle_protocol)


def write_all(values: Mapping[Path, Any], *, pickle_module: Any = pickle, pickle_protocol: int = 2) -> None:
    """`write` for several files: all are written before the first is renamed; they are renamed in order."""
    temporary = {path: _temporary(path) for path in values}
    try:
        for path, value in values.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary[path].open("wb") as file:
                torch.save(value, file, pickle_module=pickle_module, pickle_protocol=pickle_protocol)
                file.flush()
                os.fsync(file.fileno())
        for path in values:
            temporary[path].replace(path)
    finally:
        for each in temporary.values():
            each.unlink(missing_ok=True)


def write_text(text: str, path: Path) -> None:
    """Write a text file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _temporary(path)
    temporary.write_text(text)
    temporary.replace(path)


def put_in_place(finished: Path, place: Path) -> None:
    """Rename a finished folder to its place and remove the previous one. Another host may have done so already.

    Between the two renames the place is empty; `recover` restores the previous folder.
    """
    if not finished.exists() and place.exists():
        return
    if place.exists():
        remove(_old(place))
        place.rename(_old(place))
    finished.rename(place)
    remove(_old(place))


def recover(place: Path) -> None:
    """Restore the previous folder if a process died between the renames of `put_in_place`. Several may call it."""
    if not place.exists():
        with contextlib.suppress(OSError):
            _old(place).rename(place)


def keep_newest(folder: Path, ending: str, count: int) -> None:
    """Remove the oldest folders with this suffix, except the `count` newest."""
    folders = [path for path in folder.iterdir() if path.is_dir() and path.name.endswith(ending)]
    folders = [path for path in folders if not path.name.startswith(".")]
    for path in sorted(folders, key=lambda each: each.stat().st_mtime_ns)[:-count]:
        # Rename it first: a half-removed folder must not look like a checkpoint.
        hidden = path.with_name(f".{path.name}.hidden")
        with contextlib.suppress(FileNotFoundError):
            path.rename(hidden)
        remove(hidden)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.incomplete")


def _old(place: Path) -> Path:
    return place.with_name(f".{place.name}.old")


def remove(folder: Path) -> None:
    """Remove a folder with its contents, if it exists."""
    shutil.rmtree(folder, ignore_errors=True)
