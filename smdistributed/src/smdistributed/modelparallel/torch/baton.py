"""Lets the threads of the microbatches run one at a time: only the thread with the baton runs.

A thread releases the baton while it waits for another rank. The next thread is the one with the highest priority among
those whose wait is over. With `in_turn`, for bit-equal runs, it is the one whose turn it is in the order of visits, or
if there is no order the one that released the baton first, even if its wait is not over.

In the forward pass no microbatch overtakes an earlier one, in whatever order their replies arrive. So every module sees
the microbatches in order, and running statistics equal those of one process.
"""

import enum
import itertools
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")
Key = tuple[int, int]


class Priority(enum.IntEnum):
    """Which microbatch goes first.

    CONTINUE: its forward pass came back, mostly for the loss, and another rank soon waits for what follows. BACKWARD:
    its backward pass came back. BEGIN: it is new. LAST: its backward pass, if forward passes go first.
    """

    CONTINUE, BACKWARD, BEGIN, LAST = range(4)


class Halted(BaseException):
    """Another thread failed, so this one ends too. Not an Exception, because scripts catch those."""


class Baton:
    """in_turn: the order of the threads does not depend on timing. turn: the microbatch whose turn it is, if known."""

    def __init__(self, *, in_turn: bool, turn: Callable[[], int | None] = lambda: None) -> None:
        self._in_turn, self._turn, self._changed = in_turn, turn, threading.Condition()
        self._queue: set[Key] = set()
        self._next: Key | None = None
        self._passed: dict[int, int] = {}
        """Open microbatch → how many stations of its forward pass it has passed. A station is a call of another rank or
        a tensor fetched from it."""
        self._backward: set[int] = set()
        self._busy, self._stopped = False, False
        self._tickets = itertools.count()

    def line_up(self, priority: int, microbatch: int) -> Key:
        """Join the queue; the first time opens the microbatch. With `in_turn` the priority is ignored."""
        with self._changed:
            key = (next(self._tickets), microbatch) if self._in_turn else (priority, microbatch)
            self._queue.add(key)
            self._passed.setdefault(microbatch, 0)
            self._choose()
            return key

    def take(self, key: Key) -> None:
        """Wait for this thread's turn. Halted if another thread failed."""
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
        """Let no thread run any more, except the one that has the baton."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def wait(self, wait: Callable[[], Result], priority: int, microbatch: int) -> Result:
        """Call `wait` while other threads run; returns its result."""
        key = self.line_up(priority, microbatch) if self._in_turn else None
        self.give_up()
        result = wait()
        self.take(key if key is not None else self.line_up(priority, microbatch))
        return result

    def passes(self, microbatch: int) -> bool:
        """Pass a station without waiting; False if an earlier microbatch must pass it first."""
        with self._changed:
            free = self._planned() is not None or microbatch in self._free()
            if free:
                self._pass(microbatch)
            return free

    @contextmanager
    def backward(self, microbatch: int) -> Iterator[None]:
        """In the backward pass a microbatch may overtake others, and may be overtaken."""
        with self._changed:
            self._backward.add(microbatch)
        try:
            yield
        finally:
            with self._changed:
                self._backward.remove(microbatch)

    def close(self, microbatch: int) -> None:
        """The microbatch with the baton is done and blocks no other."""
        with self._changed:
            del self._passed[microbatch]

    def _pass(self, microbatch: int) -> None:
        if microbatch not in self._backward:
            self._passed[microbatch] += 1

    def _free(self) -> set[int]:
        """The microbatches that may continue without overtaking an earlier one."""
        free, least = set(), math.inf
        for microbatch, passed in self._passed.items():
            if microbatch in self._backward:
                free.add(microbatch)
                continue
            if passed < least:
                free.add(microbatch)
            least = min(least, passed)
        return free

    def _planned(self) -> int | None:
        return self._turn() if self._in_turn else None

    def _choose(self) -> None:
        planned = self._planned()
        free = self._free() if planned is None else {planned}
        self._next = min((key for key in self._queue if key[1] in free), default=None)
