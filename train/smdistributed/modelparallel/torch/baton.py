"""Whose turn it is among the threads that run microbatches: one at a time.

A thread that waits for another rank gives the baton up. Who gets it next: the first in order of priority of those whose
wait is over; or, where runs must repeat to the last bit, the one that gave it up first, its wait over or not.
"""

import heapq
import itertools
import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")
Key = tuple[int, int]


class Halted(BaseException):
    """Another thread failed; this one ends, too. No Exception, for a script may catch those."""


class Baton:
    """`in_turn`: the order does not depend on when a wait ends."""

    def __init__(self, *, in_turn: bool) -> None:
        self._in_turn, self._changed = in_turn, threading.Condition()
        self._queue: list[Key] = []
        self._busy, self._stopped = False, False
        self._tickets = itertools.count()

    def line_up(self, priority: int, microbatch: int) -> Key:
        """A place in the queue. With `in_turn` the queue has no priorities."""
        with self._changed:
            key = (next(self._tickets), microbatch) if self._in_turn else (priority, microbatch)
            heapq.heappush(self._queue, key)
            return key

    def take(self, key: Key) -> None:
        """Wait for one's turn. Halted when there is none any more."""
        with self._changed:
            while not self._stopped and (self._busy or self._queue[0] != key):
                self._changed.wait()
            if self._stopped:
                raise Halted
            heapq.heappop(self._queue)
            self._busy = True

    def give_up(self) -> None:
        """Let another thread run."""
        with self._changed:
            self._busy = False
            self._changed.notify_all()

    def stop(self) -> None:
        """Let no thread run any more, but for the one that has the baton."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def wait(self, wait: Callable[[], Result], priority: int, microbatch: int) -> Result:
        """Wait for something, and let others run meanwhile."""
        key = self.line_up(priority, microbatch) if self._in_turn else None
        self.give_up()
        result = wait()
        self.take(key if key is not None else self.line_up(priority, microbatch))
        return result
