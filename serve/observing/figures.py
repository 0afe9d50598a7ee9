"""The times of a request and the state of the queue, for logs and metrics."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields


@dataclass(slots=True)
class StageTimes:
    """Seconds of each stage; None for a stage that a request did not reach."""

    receive: float | None = None
    """Receiving the request, from its header to the end of its body."""
    read: float | None = None
    """Waiting for the reader's thread, reading the body and making windows."""
    queue: float | None = None
    """Waiting until the first batch with a window of the request begins."""
    model: float | None = None
    """Computing, from that batch to the last window, or until the handler has answered."""
    answer: float | None = None
    """Turning logits into answers, and answers into text."""

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Measure a `with` block as this stage."""
        began = time.monotonic()
        try:
            yield
        finally:
            setattr(self, stage, time.monotonic() - began)

    def known(self) -> dict[str, float]:
        """The stages that the request has reached, in order."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Work:
    """The work that waits, and the work done since the start."""

    tokens: int = 0
    """Tokens that wait for a worker; with a handler, a request counts as one token."""
    bodies: int = 0
    """Bytes of requests that are being received or answered."""
    requests: int = 0
    """Requests that are being received or answered."""
    batches: int = 0
    windows: int = 0
    """Windows in all batches."""
    window_tokens: int = 0
    padded_tokens: int = 0
    """Tokens including padding: window_tokens / padded_tokens is how full the batches are."""

    def __add__(self, other: "Work") -> "Work":
        """The sum, field by field."""
        return Work(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))
