"""Decides which requests are accepted and which worker gets which batch. It has no lock, clock or processes: those
belong to the pool.

A request is accepted if the work before it takes at most half of its time. If that estimate turns out to be too low,
because the speed was not known yet or has changed, the request is refused while it waits (503), instead of timing out
(504).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from berth.serve.errors import Kind, ServeError
from berth.serve.limits import RequestLimits
from berth.serve.observing.figures import Work
from berth.serve.workers.messages import Batch
from berth.serve.workers.scheduler import QueuedJob, Scheduler, WaitingWindow, finish

_DECAY = 0.9
"""The weight of a batch is multiplied by this for each later batch."""
_WARM_UP_TOKENS = 32
"""Tokens as which the warm-up question counts: fewer than a usual batch has, so that real batches soon outweigh it."""


class Speed:
    """Estimates a slot's seconds per token, a moving average. A handler's request counts as one token."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._tokens = 0.0

    def begin(self, seconds_per_token: float) -> None:
        """Begin with the speed of a worker's warm-up question, unless a batch was already measured."""
        if not self._tokens:
            self._seconds, self._tokens = seconds_per_token * _WARM_UP_TOKENS, _WARM_UP_TOKENS

    def note(self, seconds: float, tokens: int) -> None:
        """Note that a batch of `tokens` took `seconds` of a slot."""
        self._seconds = _DECAY * self._seconds + seconds
        self._tokens = _DECAY * self._tokens + tokens

    def seconds_per_token(self, running: Iterable[tuple[float, int]] = ()) -> float:
        """The current estimate; 0 if nothing was measured yet.

        `running`: the slot seconds and tokens of each batch in flight. A batch that takes longer than expected counts
        as if it ended now. So the first request of a slow handler raises the estimate while it still runs.
        """
        expected = self._seconds / self._tokens if self._tokens else 0.0
        late = [(seconds, tokens) for seconds, tokens in running if seconds > expected * tokens]
        if not late:
            return expected
        decay = _DECAY ** len(late)
        seconds = decay * self._seconds + sum(seconds for seconds, _ in late)
        return seconds / (decay * self._tokens + sum(tokens for _, tokens in late))


_MOST_DEATHS = 2
"""A job is given up when this many workers have died while they computed it."""
_IN_TIME = 0.95
"""A job is refused if its answer is expected after this share of its time."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """A batch that a worker computes. `threads`: slots whose threads it uses; all of the worker's if it is alone."""

    windows: Sequence[WaitingWindow]
    began: float
    threads: int

    @property
    def tokens(self) -> int:
        return sum(window.length for window in self.windows)

    def slot_seconds(self, now: float) -> float:
        """Seconds since it was sent, times the slots that it uses."""
        return (now - self.began) * self.threads


@dataclass(eq=False, slots=True)
class Slots:
    """A worker's capacity: `count` batches at a time, of up to `rows` rows. `send` sends a batch and must not block."""

    send: Callable[[Batch], None]
    count: int = 0
    """0 until the worker is ready, and when it is to end."""
    rows: int = 1
    in_flight: dict[int, InFlight] = field(default_factory=dict)

    @property
    def free(self) -> bool:
        """Whether it can take a batch. A job over which a worker has died gets a worker to itself."""
        suspects = any(window.job.deaths for flight in self.in_flight.values() for window in flight.windows)
        return len(self.in_flight) < self.count and not suspects

    def seconds(self, now: float) -> float:
        """Seconds since its oldest batch was sent."""
        return max((now - flight.began for flight in self.in_flight.values()), default=0.0)


class Dispatcher:
    """All times are seconds of one monotonic clock."""

    def __init__(self, limits: RequestLimits) -> None:
        self.workers: list[Slots] = []
        self.speed = Speed()
        self._limits = limits
        self._scheduler = Scheduler()
        self._numbers = 0
        self._slots = 1  # of all workers that were ready when the last batch was sent
        self._computed = Work()

    @property
    def work(self) -> Work:
        """The work that waits, and the work done since the start."""
        return replace(self._computed, tokens=self._scheduler.tokens)

    def waiting_seconds(self, now: float) -> float:
        """How long one more request is expected to wait."""
        return self._scheduler.tokens * self._pace(now)

    def accept(self, job: QueuedJob, now: float) -> None:
        """Queue a job; ServeError (503) if too much work waits to answer it in time."""
        pace, tokens = self._pace(now), self._scheduler.tokens
        waiting, own = tokens * pace, self._own_seconds(job, pace)
        left = job.deadline - now
        too_long = max(waiting - left / 2, waiting + own - _IN_TIME * left)
        if waiting and too_long > 0:
            raise _overloaded(waiting, own, too_long)
        if tokens and tokens + job.tokens > self._limits.waiting_tokens:
            sentence = f"{tokens} tokens wait for the model already: send the request again later"
            raise ServeError(Kind.OVERLOADED, sentence, math.ceil(waiting / 2) or 1)
        self._scheduler.add(job, pace)
        self.dispatch(now)

    def refuse_late(self, now: float) -> list[tuple[QueuedJob, ServeError]]:
        """Remove the waiting jobs that would be answered too late; returns them with their errors (503)."""
        pace = self._pace(now)
        refused = []
        waiting = self._first_free(now)
        for job, tokens in self._scheduler.waiting().items():
            answered = now + waiting + self._own_seconds(job, pace)
            too_long = answered - job.arrived - _IN_TIME * (job.deadline - job.arrived)
            if too_long > 0 and job.began is None:
                refused.append((job, _late(now - job.arrived, waiting, too_long)))
            else:
                waiting += tokens * pace
        self._scheduler.drop(*(job for job, _ in refused))
        return refused

    def drop(self, job: QueuedJob) -> None:
        """Remove the waiting windows of a job."""
        self._scheduler.drop(job)

    def drop_all(self) -> list[QueuedJob]:
        """Remove all waiting windows; returns their jobs."""
        jobs = list(self._scheduler.waiting())
        self._scheduler.drop(*jobs)
        return jobs

    def dispatch(self, now: float) -> None:
        """Give a batch to every free slot while windows wait."""
        while len(self._scheduler):
            free = [worker for worker in self.workers if worker.free]
            if not free:
                return
            worker = min(free, key=lambda each: len(each.in_flight))
            self._slots = sum(each.count for each in self.workers)
            batch = self._scheduler.next_batch(worker.rows, self._slots, idle=not worker.in_flight)
            if not batch:
                return
            self._send(worker, batch, now)

    def complete(self, worker: Slots, number: int, results: Sequence[Any], now: float) -> list[QueuedJob]:
        """Store the results of a batch; returns the jobs that are now complete."""
        flight = worker.in_flight.pop(number)
        self.speed.note(flight.slot_seconds(now), flight.tokens)
        done = finish(flight.windows, results)
        for job in done:
            assert job.began is not None
            job.times.model = now - job.began
        return done

    def fail(self, worker: Slots, number: int) -> list[QueuedJob]:
        """Remove the jobs of a batch that could not be computed, and return them."""
        jobs = _jobs_of([worker.in_flight.pop(number)])
        self._scheduler.drop(*jobs)
        return jobs

    def lose(self, worker: Slots, now: float) -> list[QueuedJob]:
        """Remove a worker that has died. Its windows wait again; jobs that may not be repeated are returned."""
        self.workers.remove(worker)
        given_up = []
        for job in _jobs_of(worker.in_flight.values()):
            self._scheduler.drop(job)
            job.deaths += 1
            if job.future.done():
                continue  # its client is gone
            if job.repeatable and job.deaths < _MOST_DEATHS:
                self._scheduler.add(job, self._pace(now))
            else:
                given_up.append(job)
        return given_up

    def _pace(self, now: float) -> float:
        """Seconds per token of all workers together."""
        flights = [flight for worker in self.workers for flight in worker.in_flight.values()]
        running = ((flight.slot_seconds(now), flight.tokens) for flight in flights)
        return self.speed.seconds_per_token(running) / self._slots

    def _own_seconds(self, job: QueuedJob, pace: float) -> float:
        """Expected seconds of computing a job; its longest row runs in a single slot."""
        return pace * max(job.tokens, self._slots * max(job.lengths))

    def _first_free(self, now: float) -> float:
        """Expected seconds until any slot is free."""
        expected = self._pace(now) * self._slots
        flights = [flight for worker in self.workers if worker.count for flight in worker.in_flight.values()]
        left = (max(0.0, expected * flight.tokens - flight.slot_seconds(now)) / flight.threads for flight in flights)
        return min(left, default=0.0)

    def _send(self, worker: Slots, batch: Sequence[WaitingWindow], now: float) -> None:
        self._numbers += 1
        alone = not worker.in_flight and not len(self._scheduler)
        worker.in_flight[self._numbers] = InFlight(batch, now, worker.count if alone else 1)
        self._note(batch, now)
        rows = [window.job.hand_over(window.index) for window in batch]
        worker.send(Batch(self._numbers, rows, alone))

    def _note(self, batch: Sequence[WaitingWindow], now: float) -> None:
        lengths = [window.length for window in batch]
        self._computed += Work(
            batches=1,
            windows=len(batch),
            window_tokens=sum(lengths),
            padded_tokens=len(batch) * max(lengths),
        )
        for job in {window.job: None for window in batch}:
            if job.began is None:
                job.began = now
                job.times.queue = now - job.arrived


def _overloaded(waiting: float, own: float, too_long: float) -> ServeError:
    own_part = f" and needs {own:.0f} s for this request" if own > waiting else ""
    sentence = f"the model has work for {waiting:.0f} s already{own_part}: send the request again later"
    return ServeError(Kind.OVERLOADED, sentence, math.ceil(too_long))


def _late(waited: float, waiting: float, too_long: float) -> ServeError:
    sentence = f"this request has waited for {waited:.0f} s, and the model has work for {waiting:.0f} s before it"
    return ServeError(Kind.OVERLOADED, f"{sentence}: send it again later", math.ceil(too_long))


def _jobs_of(flights: Iterable[InFlight]) -> list[QueuedJob]:
    return list({window.job: None for flight in flights for window in flight.windows})
