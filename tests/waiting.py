"""Waits for what another process or thread makes true."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], what: str = "the condition", seconds: float = 90) -> None:
    """Wait until the condition is true; AssertionError with `what` after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.01)
