"""Decides which waiting windows make the next batch. It does no I/O and has no lock; its caller holds one.

Windows run in order of arrival, but each later window of a job counts as arriving later, by the time that the
windows before it take. So a short job does not wait for all windows of a long one. A batch is the next window with
others of similar length.
"""

import math
from bisect import insort
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from berth.runtime.engines.batches import WASTE
from berth.serve.observing.figures import StageTimes
from berth.serve.workers.messages import JobRow

_CANDIDATES = 64
"""A batch is chosen from this many windows at the head of the queue."""


@dataclass(eq=False, slots=True)
class QueuedJob:
    """A request's rows in the queue and in the workers: a job.

    `repeatable`: whether another worker may compute it if one died over it. `deaths`: workers that died over it.
    `arrived`: when it was queued. `began`: when the first batch with a row of it was sent. `deadline`: when its client
    stops waiting. `times` gets the times in the queue and with the model.
    """

    rows: list[JobRow | None]
    """None for a row that was sent and will not be sent again."""
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
        """Tokens of all rows."""
        return sum(self.lengths)

    def hand_over(self, index: int) -> JobRow:
        """A row, to be sent. If the job is not repeatable, the row is dropped here, because the body of a request to a
        handler may be large.
        """
        row = self.rows[index]
        assert row is not None
        if not self.repeatable:
            self.rows[index] = None
        return row


@dataclass(frozen=True, slots=True, order=True)
class WaitingWindow:
    """One waiting row of a job, ordered by its turn."""

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
        """Queue all windows of a job that have no result yet."""
        turn = job.arrived
        for index, length in enumerate(job.lengths):
            if index not in job.results:
                self._number += 1
                insort(self._waiting, WaitingWindow(turn, self._number, job, index))
                self.tokens += length
                turn += seconds_per_token * length

    def drop(self, *jobs: QueuedJob) -> None:
        """Remove the waiting windows of these jobs."""
        dropped = set(jobs)
        self._waiting = [window for window in self._waiting if window.job not in dropped]
        self.tokens = sum(window.length for window in self._waiting)

    def waiting(self) -> dict[QueuedJob, int]:
        """The waiting tokens of each job, in the order of their first windows."""
        tokens: dict[QueuedJob, int] = {}
        for window in self._waiting:
            tokens[window.job] = tokens.get(window.job, 0) + window.length
        return tokens

    def next_batch(self, most: int, slots: int, *, idle: bool) -> list[WaitingWindow]:
        """The next windows: at most `most`, and at most an equal share of the waiting windows for each of `slots`.

        A job over which a worker has died runs alone on an `idle` worker, so that another death is its fault for
        certain. Empty if no window waits, or if such a job is next and the worker is not idle.
        """
        if not self._waiting:
            return []
        first = self._waiting[0]
        if first.job.deaths:
            batch = [first] if idle else []
        else:
            size = min(most, max(1, len(self._waiting) // slots))
            batch = list(_of_similar_length(first, self._waiting[1:_CANDIDATES], size))
        for window in batch:
            self._waiting.remove(window)
            self.tokens -= window.length
        return batch


def _of_similar_length(first: WaitingWindow, others: Sequence[WaitingWindow], size: int) -> Iterator[WaitingWindow]:
    """`first` and those of `others` that add little padding to the batch, in order, up to `size` windows."""
    yield first
    taken, longest, tokens = 1, first.length, first.length
    for other in others:
        if taken == size:
            return
        padded = max(longest, other.length) * (taken + 1)
        if not other.job.deaths and padded - tokens - other.length <= WASTE * padded:
            taken, longest, tokens = taken + 1, max(longest, other.length), tokens + other.length
            yield other


def finish(batch: Sequence[WaitingWindow], results: Sequence[Any]) -> list[QueuedJob]:
    """Store the results of a batch; returns the jobs that are now complete."""
    complete = []
    for window, result in zip(batch, results, strict=True):
        job = window.job
        job.results[window.index] = result
        if len(job.results) == len(job.rows):
            complete.append(job)
    return complete
