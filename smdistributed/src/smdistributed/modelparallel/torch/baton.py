"""Whose turn it is among the threads that run microbatches: one at a time.

A thread that waits for another rank gives the baton up. Who gets it next: the first in order of priority of those whose
wait is over; or, where runs must repeat to the last bit, the one that gave it up first, its wait over or not.

No microbatch overtakes an earlier one on the way forward, whoever's wait ends first: every module sees them in their
order, and running statistics are those of one process.
"""

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")
Key = tuple[int, int]


class Halted(BaseException):
    """Another thread failed; this one ends, too. No Exception, for a script may catch those."""


class Baton:
    """`in_turn`: the order does not depend on when a wait ends."""

    def __init__(self, *, in_turn: bool) -> None:
        self._in_turn, self._changed = in_turn, threading.Condition()
        self._queue: set[Key] = set()
        self._next: Key | None = None
        self._passed: dict[int, int] = {}
        """By open microbatch, in their order: how many stations of its way forward, which are calls of other ranks and
        tensors fetched from them, it has left behind."""
        self._backward: set[int] = set()
        self._busy, self._stopped = False, False
        self._tickets = itertools.count()

    def line_up(self, priority: int, microbatch: int) -> Key:
        """A place in the queue; the first one opens the microbatch. With `in_turn` the queue has no priorities."""
        with self._changed:
            key = (next(self._tickets), microbatch) if self._in_turn else (priority, microbatch)
            self._queue.add(key)
            self._passed.setdefault(microbatch, 0)
            self._choose()
            return key

    def take(self, key: Key) -> None:
        """Wait for one's turn. Halted when there is none any more."""
        with self._changed:
            while not self._stopped and (self._busy or self._next != key):
                self._changed.wait()
            if self._stopped:
                raise Halted
            self._queue.remove(key)
            self._busy = True
            self._pass(key[1])

    def give_up(self) -> None:
        """Let another thread run."""
        with self._changed:
            self._busy = False
            self._choose()
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

    def passes(self, microbatch: int) -> bool:
        """Leave a station behind where there is nothing to wait for; False if earlier microbatches must do so first."""
        with self._changed:
            free = microbatch in self._free()
            if free:
                self._pass(microbatch)
            return free

    @contextmanager
    def backward(self, microbatch: int) -> Iterator[None]:
        """On its way back a microbatch overtakes whom it likes, and later ones need not stay behind it."""
        with self._changed:
            self._backward.add(microbatch)
        try:
            yield
        finally:
            with self._changed:
                self._backward.remove(microbatch)

    def close(self, microbatch: int) -> None:
        """The microbatch that has the baton is done: nobody need stay behind it."""
        with self._changed:
            del self._passed[microbatch]

    def _pass(self, microbatch: int) -> None:
        if microbatch not in self._backward:
            self._passed[microbatch] += 1

    def _free(self) -> set[int]:
        """The microbatches that overtake nobody by going on."""
        found, least = set(), math.inf
        for microbatch, passed in self._passed.items():
            if microbatch in self._backward:
                found.add(microbatch)
                continue
            if passed < least:
                found.add(microbatch)
            least = min(least, passed)
        return found

    def _choose(self) -> None:
        free = self._free()
        self._next = min((key for key in self._queue if key[1] in free), default=None)
