"""How much the server holds at a time for all clients together. Only the event loop uses it, so there is no lock."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from berth.runtime.memory import available_memory
from berth.serve.errors import Kind, ServeError
from berth.serve.limits import MEBIBYTE, RequestLimits

LATER = "send the request again later"
_QUARTER = 4
"""All bodies together may take a quarter of the free memory: on its way to a worker a body briefly exists up to four
times, and a handler makes further copies."""


class Share:
    """A limit on an amount that is held at a time; ServeError (503) for a request that would exceed it."""

    def __init__(self, most: int, what: str, waiting_seconds: Callable[[], float], advice: str = LATER) -> None:
        """`what`: the unit and its state, for the error, such as `requests wait for an answer`."""
        self.most = most
        self.used = 0
        self._what = what
        self._waiting_seconds = waiting_seconds
        self._advice = advice

    def take(self, amount: int) -> None:
        """Add to the amount in use. The caller must `give` it back."""
        if self.used + amount > self.most:
            sentence = f"{self.most} {self._what} already: {self._advice}"
            # A client may retry when half of the work that waits for the model is done.
            raise ServeError(Kind.OVERLOADED, sentence, max(1, math.ceil(self._waiting_seconds() / 2)))
        self.used += amount

    def give(self, amount: int) -> None:
        self.used -= amount

    @contextmanager
    def hold(self, amount: int) -> Iterator[None]:
        """Take `amount` for the length of a `with` block."""
        self.take(amount)
        try:
            yield
        finally:
            self.give(amount)


class MemoryShare(Share):
    """Bytes of the container's memory. `most` is a quarter of the free memory, measured again when the use has
    changed by a mebibyte.
    """

    def __init__(self, available: Callable[[], int], waiting_seconds: Callable[[], float]) -> None:
        """`available` returns the bytes of free memory."""
        what = "bytes of requests, a quarter of the free memory, are being received or answered"
        super().__init__(
            available() // _QUARTER, what, waiting_seconds, f"{LATER}, or use an instance with more memory"
        )
        self._available = available
        self._used_when_measured = 0

    def take(self, amount: int) -> None:
        if abs(self.used + amount - self._used_when_measured) >= MEBIBYTE:
            self.most = self._available() // _QUARTER
            self._used_when_measured = self.used
        if amount > self.most:
            sentence = (
                f"the body needs {amount} bytes, and a quarter of the free memory is {self.most}: send less at once, "
                "or use an instance with more memory"
            )
            raise ServeError(Kind.TOO_LARGE, sentence)
        super().take(amount)


class Holding:
    """The amount that one request has taken from each of several shares."""

    def __init__(self, *shares: Share) -> None:
        self._shares = shares
        self._taken = 0

    def grow_to(self, amount: int) -> None:
        """Take until `amount` of every share is held; nothing is taken if one has too little left (ServeError, 503)."""
        more = max(0, amount - self._taken)
        for number, share in enumerate(self._shares):
            try:
                share.take(more)
            except ServeError:
                for earlier in self._shares[:number]:
                    earlier.give(more)
                raise
        self._taken += more

    def give_all(self) -> None:
        """Give everything back."""
        for share in self._shares:
            share.give(self._taken)
        self._taken = 0


class Admission:
    """The server's shares."""

    def __init__(
        self,
        limits: RequestLimits,
        waiting_seconds: Callable[[], float],
        available: Callable[[], int] = available_memory,
    ) -> None:
        """`waiting_seconds`: seconds of work that wait for the model; `available`: bytes of free memory."""
        self.bodies = MemoryShare(available, waiting_seconds)
        self.unread = Share(limits.unread_bodies, "bytes of requests wait to be read", waiting_seconds)
        self.requests = Share(limits.requests, "requests wait for an answer", waiting_seconds)
