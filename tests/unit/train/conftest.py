"""What holds for every test of training."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def no_thread_dies(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test sends or breaks: a thread of the kit's that dies leaves a host waiting."""
    died: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    yield
    assert died == []
