"""What the server holds at one time for all clients together; used by the event loop only, hence without a lock."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from berth.serve.errors import Kind, ServeError
from berth.serve.limits import RequestLimits


class Share:
    """So much of something at one time; ServeError (503) for whoever would take more."""

    def __init__(self, most: int, sentence: str, retry_after: Callable[[], int]) -> None:
        self.most = most
        self.used = 0
        self._sentence = sentence
        self._retry_after = retry_after

    def take(self, amount: int) -> None:
        """`give` must follow."""
        if self.used + amount > self.most:
            sentence = f"{self._sentence}: send the request again later"
            raise ServeError(Kind.OVERLOADED, sentence, self._retry_after())
        self.used += amount

    def give(self, amount: int) -> None:
        self.used -= amount

    @contextmanager
    def hold(self, amount: int) -> Iterator[None]:
        """Take it for the length of a `with` block."""
        self.take(amount)
        try:
            yield
        finally:
            self.give(amount)


class Admission:
    """The server's shares."""

    def __init__(self, limits: RequestLimits, waiting_seconds: Callable[[], float]) -> None:
        """`waiting_seconds`: how long the work takes that waits for the model."""

        def retry_after() -> int:
            return max(1, math.ceil(waiting_seconds() / 2))

        def share(most: int, sentence: str) -> Share:
            return Share(most, f"{most} {sentence} already", retry_after)

        self.bodies = share(limits.held_bodies, "bytes of requests are being received")
        self.unread = share(limits.unread_bodies, "bytes of requests wait to be read")
        self.requests = share(limits.requests, "requests wait for an answer")
