"""Which windows of all waiting requests are the next batch. Pure, but for what it holds; its user has a lock.

In order of arrival, but a long request stands back with its later windows for those that come meanwhile: by as much
time as the windows before take, so that neither waits for long because the other is there. A batch is the window whose
turn it is with others of like length.
"""

import math
from bisect import insort
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from berth.runtime.engines.batches import WASTE
from berth.serve.figures import StageTimes
from berth.serve.workers.messages import JobRow

_LOOKED_AT = 64
"""Waiting windows among which a batch is chosen."""


@dataclass(eq=False, slots=True)
class QueuedJob:
    """A request's rows on their way through the workers.

    `repeatable`: whether a worker may begin with it where another has died over it, `deaths` of them up to now.
    `arrived` and `began`: when it came, and when the first batch did that has a row of it; `times` gets both stages.
    `deadline`: when nobody waits for its answer any more.
    """

    rows: list[JobRow | None]
    """None for one that a worker has and that nobody will want again."""
    arrived: float
    deadline: float = math.inf
    repeatable: bool = True
    future: Future[list[Any]] = field(default_factory=Future)
    times: StageTimes = field(default_factory=StageTimes)
    began: float | None = None
    deaths: int = 0
    results: dict[int, Any] = field(default_factory=dict)
    lengths: Sequence[int] = field(init=False)
    """Tokens of each row."""

    def __post_init__(self) -> None:
        self.lengths = [row.length for row in self.rows if row is not None]

    @property
    def tokens(self) -> int:
        """Of all its rows."""
        return sum(self.lengths)

    def hand_over(self, index: int) -> JobRow:
        """A row for a worker. A request that may not be repeated forgets what it hands over: no other worker will want
        it, and the body of a request to a handler may be large.
        """
        row = self.rows[index]
        assert row is not None
        if not self.repeatable:
            self.rows[index] = None
        return row


@dataclass(frozen=True, slots=True, order=True)
class WaitingWindow:
    """One window of a request; ordered by when its turn is."""

    turn: float
    number: int
    job: QueuedJob = field(compare=False)
    index: int = field(compare=False)

    @property
    def length(self) -> int:
        """Tokens."""
        return self.job.lengths[self.index]


class Scheduler:
    """The windows that wait."""

    def __init__(self) -> None:
        self._waiting: list[WaitingWindow] = []
        self._number = 0
        self.tokens = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, job: QueuedJob, seconds_per_token: float) -> None:
        """Queue all windows of a request, or those that a worker took with it when it died."""
        turn = job.arrived
        for index, length in enumerate(job.lengths):
            if index not in job.results:
                self._number += 1
                insort(self._waiting, WaitingWindow(turn, self._number, job, index))
                self.tokens += length
                turn += seconds_per_token * length

    def drop(self, *jobs: QueuedJob) -> None:
        """Forget what waits of these requests."""
        gone = set(jobs)
        self._waiting = [window for window in self._waiting if window.job not in gone]
        self.tokens = sum(window.length for window in self._waiting)

    def waiting(self) -> dict[QueuedJob, int]:
        """Every request of which something waits, by the turn of its first window, and how many tokens of it wait."""
        found: dict[QueuedJob, int] = {}
        for window in self._waiting:
            found[window.job] = found.get(window.job, 0) + window.length
        return found

    def take_all(self) -> list[QueuedJob]:
        """Every request of which something waits; nothing waits from then on."""
        jobs = list(self.waiting())
        self._waiting.clear()
        self.tokens = 0
        return jobs

    def next_batch(self, most: int, slots: int, *, idle: bool) -> list[WaitingWindow]:
        """The next windows, at most `most`, and no more than leave something for each of `slots`; empty if none waits.

        A request over which a worker has died runs alone, on a worker that is `idle`, so that it is known whose fault
        another death is.
        """
        if not self._waiting:
            return []
        first = self._waiting[0]
        if first.job.deaths:
            chosen = [first] if idle else []
        else:
            size = min(most, max(1, len(self._waiting) // slots))
            chosen = list(_alike(first, self._waiting[1:_LOOKED_AT], size))
        for window in chosen:
            self._waiting.remove(window)
            self.tokens -= window.length
        return chosen


def _alike(first: WaitingWindow, others: Sequence[WaitingWindow], size: int) -> Iterator[WaitingWindow]:
    """`first`, and of the others, in their order, those whose length is like its, up to `size` in all."""
    yield first
    taken, longest, tokens = 1, first.length, first.length
    for other in others:
        if taken == size:
            return
        padded = max(longest, other.length) * (taken + 1)
        if not other.job.deaths and padded - tokens - other.length <= WASTE * padded:
            taken, longest, tokens = taken + 1, max(longest, other.length), tokens + other.length
            yield other


def rows_of(batch: Sequence[WaitingWindow]) -> list[JobRow]:
    """The rows of a batch, handed over to a worker."""
    return [window.job.hand_over(window.index) for window in batch]


def finish(batch: Sequence[WaitingWindow], results: Sequence[Any]) -> list[QueuedJob]:
    """Note what came of a batch; the requests that are complete by it."""
    complete = []
    for window, one in zip(batch, results, strict=True):
        job = window.job
        job.results[window.index] = one
        if len(job.results) == len(job.rows):
            complete.append(job)
    return complete
