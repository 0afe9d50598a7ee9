"""What the server holds at one time for all clients together; used by the event loop only, hence without a lock."""

from collections.abc import Iterator
from contextlib import contextmanager

from berth.serve.errors import Kind, ServeError
from berth.serve.limits import RequestLimits


class Share:
    """So much of something at one time; ServeError (503) for whoever would take more."""

    def __init__(self, most: int, sentence: str) -> None:
        self.most = most
        self.used = 0
        self._sentence = sentence

    def take(self, amount: int) -> None:
        """`give` must follow."""
        if self.used + amount > self.most:
            raise ServeError(Kind.OVERLOADED, f"{self._sentence}: send the request again later", retry_after=1)
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

    def __init__(self, limits: RequestLimits) -> None:
        self.bodies = Share(limits.held_bodies, f"{limits.held_bodies} bytes of requests are being received already")
        self.unread = Share(limits.unread_bodies, f"{limits.unread_bodies} bytes of requests wait to be read already")
        self.requests = Share(limits.requests, f"{limits.requests} requests wait for an answer already")
