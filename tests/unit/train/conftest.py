"""A check that every test of training gets, and small disks."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def no_thread_dies(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No thread may end with an exception: in a job, a host would wait for it for ever."""
    exceptions: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", exceptions.append)
    yield
    assert exceptions == []


@pytest.fixture
def mounted() -> Iterator[Callable[[Path, str], None]]:
    """`mounted(folder, "size=64k")` mounts a tmpfs with these options until the test ends."""
    folders: list[Path] = []

    def mount(folder: Path, options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        result = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True)
        if result.returncode:
            pytest.skip(f"can't mount a tmpfs: {result.stderr.decode().strip()}")
        folders.append(folder)

    yield mount
    for folder in folders:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
