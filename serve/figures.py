"""What is told of a request, and of the queue, in logs and metrics."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields


@dataclass(slots=True)
class StageTimes:
    """Seconds of each stage; None for one that a request did not come to."""

    receive: float | None = None
    """From the header to the end of the body."""
    read: float | None = None
    """Reading JSON and making windows, and the wait for the thread that does it."""
    queue: float | None = None
    """Until the first batch begins that has a window of the request."""
    model: float | None = None
    """From there until the last of its windows is computed, or until its handler has answered."""
    answer: float | None = None
    """Making answers of logits, and their text."""

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Take the time of a `with` block for this stage."""
        began = time.monotonic()
        try:
            yield
        finally:
            setattr(self, stage, time.monotonic() - began)

    def known(self) -> dict[str, float]:
        """Those that there are, in the order of a request's way."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Load:
    """What waits, and what has been computed since the start."""

    tokens: int = 0
    """That wait for a worker; of a model with a handler of its own, requests."""
    bodies: int = 0
    """Bytes of requests that are being received or answered."""
    requests: int = 0
    """That are being received or answered."""
    batches: int = 0
    windows: int = 0
    """Of these batches, together."""
    window_tokens: int = 0
    padded_tokens: int = 0
    """The same with what fills up shorter windows: window_tokens / padded_tokens is how full batches are."""

    def __add__(self, other: "Load") -> "Load":
        """Of both together."""
        return Load(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))
