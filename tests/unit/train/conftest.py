"""A check that every test of training gets."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def no_thread_dies(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No thread may end with an exception: in a job, a host would wait for it for ever."""
    exceptions: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", exceptions.append)
    yield
    assert exceptions == []
