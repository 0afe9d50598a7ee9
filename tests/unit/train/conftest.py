"""What holds for every test of training."""

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def loggers_stay_as_they_were() -> Iterator[None]:
    """A test that begins the log of a job takes the kit's loggers away from those that run after it."""
    kit = logging.getLogger("berth")
    before = (kit.level, kit.propagate, list(kit.handlers))
    yield
    kit.setLevel(before[0])
    kit.propagate, kit.handlers = before[1:]


@pytest.fixture(autouse=True)
def no_thread_dies(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test sends or breaks: a thread of the kit's that dies leaves a host waiting."""
    died: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    yield
    assert died == []
