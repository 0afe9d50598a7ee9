"""Decides what is accepted, which worker gets which batch, and what becomes of a request. The pool has the lock, the
clock and the processes.

A request is accepted if the work before it takes at most half of its time. If that turns out to be wrong, because the
speed was not known yet or has changed, the request is refused while it waits (503), before it is too late (504).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from berth.serve.errors import Kind, ServeError
from berth.serve.figures import Load
from berth.serve.limits import RequestLimits
from berth.serve.workers.messages import Batch
from berth.serve.workers.scheduler import QueuedJob, Scheduler, WaitingWindow, finish, rows_of

_MEMORY = 0.9
"""What a batch counts for after each one that came behind it."""
_WARM_UP_TOKENS = 32
"""What the warm-up question counts for: less than a batch of usual length, which soon outweighs it."""


class Speed:
    """Seconds of one slot for a token, of which a handler's request counts as one. Nothing is known at first."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._tokens = 0.0

    def begin(self, seconds_per_token: float) -> None:
        """Take the speed of a worker's warm-up question for a start, unless something is known already."""
        if not self._tokens:
            self._seconds, self._tokens = seconds_per_token * _WARM_UP_TOKENS, _WARM_UP_TOKENS

    def note(self, seconds: float, tokens: int) -> None:
        """A batch of so many tokens kept a slot for so long."""
        self._seconds = _MEMORY * self._seconds + seconds
        self._tokens = _MEMORY * self._tokens + tokens

    def seconds_per_token(self, running: Iterable[tuple[float, int]] = ()) -> float:
        """As far as is known now; 0 before anything is.

        `running`: of each batch in flight, for how many seconds it has kept a slot, and its tokens. One that takes
        longer than expected counts as if it ended now. So the first request of a slow handler says how slow it is while
        it runs.
        """
        expected = self._seconds / self._tokens if self._tokens else 0.0
        late = [(seconds, tokens) for seconds, tokens in running if seconds > expected * tokens]
        if not late:
            return expected
        memory = _MEMORY ** len(late)
        seconds = memory * self._seconds + sum(seconds for seconds, _ in late)
        return seconds / (memory * self._tokens + sum(tokens for _, tokens in late))


_MOST_DEATHS = 2
"""Workers that may die over a request before it is given up."""
_IN_TIME = 0.95
"""Of a request's time: if its answer is expected later, it is refused."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """A batch that is with a worker. `threads`: slots whose threads it has, all of the worker's if it is alone."""

    windows: Sequence[WaitingWindow]
    began: float
    threads: int

    @property
    def tokens(self) -> int:
        return sum(window.length for window in self.windows)

    def slot_seconds(self, now: float) -> float:
        """For how long it has been with the worker, times the slots that it has."""
        return (now - self.began) * self.threads


@dataclass(eq=False, slots=True)
class Slots:
    """What a worker can do at one time: `count` batches of `rows` each. `send` hands it a batch, and must not block."""

    send: Callable[[Batch], None]
    count: int = 0
    """0 until it is ready, and once it is to end."""
    rows: int = 1
    in_flight: dict[int, InFlight] = field(default_factory=dict)

    @property
    def free(self) -> bool:
        """Whether it can take a batch: not next to a request over which a worker has died."""
        suspects = any(window.job.deaths for flight in self.in_flight.values() for window in flight.windows)
        return len(self.in_flight) < self.count and not suspects

    def seconds(self, now: float) -> float:
        """For how long the oldest of its batches has been with it."""
        return max((now - flight.began for flight in self.in_flight.values()), default=0.0)


class Dispatcher:
    """Times are those of one monotonic clock, in seconds."""

    def __init__(self, limits: RequestLimits) -> None:
        self.workers: list[Slots] = []
        self.speed = Speed()
        self._limits = limits
        self._scheduler = Scheduler()
        self._numbers = 0
        self._slots = 1  # of all workers that were ready when the last batch was handed over
        self._computed = Load()

    @property
    def load(self) -> Load:
        """What waits, and what has been computed."""
        return replace(self._computed, tokens=self._scheduler.tokens)

    def waiting_seconds(self, now: float) -> float:
        """How long one more request would wait, as far as can be told."""
        return self._scheduler.tokens * self._pace(now)

    def accept(self, job: QueuedJob, now: float) -> None:
        """Queue a request; ServeError (503) if too much waits for it to be answered in its time."""
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
        """The requests that wait and would be answered too late, with their refusals (503); they wait no longer."""
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
        """Forget what waits of a request."""
        self._scheduler.drop(job)

    def drop_all(self) -> list[QueuedJob]:
        """Every request of which something waits; nothing waits from then on."""
        return self._scheduler.take_all()

    def dispatch(self, now: float) -> None:
        """Give every free slot a batch, as long as there is work."""
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
        """Note what came of a batch; the requests that are complete by it."""
        flight = worker.in_flight.pop(number)
        self.speed.note(flight.slot_seconds(now), flight.tokens)
        done = finish(flight.windows, results)
        for job in done:
            assert job.began is not None
            job.times.model = now - job.began
        return done

    def fail(self, worker: Slots, number: int) -> list[QueuedJob]:
        """The requests of a batch that could not be computed; nothing of them waits any more."""
        jobs = _jobs_of([worker.in_flight.pop(number)])
        self._scheduler.drop(*jobs)
        return jobs

    def lose(self, worker: Slots, now: float) -> list[QueuedJob]:
        """Remove a worker that has died. What it had waits again; those requests that may not are given up, and
        returned.
        """
        self.workers.remove(worker)
        given_up = []
        for job in _jobs_of(worker.in_flight.values()):
            self._scheduler.drop(job)
            job.deaths += 1
            if job.future.done():
                continue  # nobody waits for it any more
            if job.repeatable and job.deaths < _MOST_DEATHS:
                self._scheduler.add(job, self._pace(now))
            else:
                given_up.append(job)
        return given_up

    def _pace(self, now: float) -> float:
        """Seconds of all workers together for a token."""
        flights = [flight for worker in self.workers for flight in worker.in_flight.values()]
        running = ((flight.slot_seconds(now), flight.tokens) for flight in flights)
        return self.speed.seconds_per_token(running) / self._slots

    def _own_seconds(self, job: QueuedJob, pace: float) -> float:
        """For how long a request is expected to be with the workers: one row is in one slot, whatever others do."""
        return pace * max(job.tokens, self._slots * max(job.lengths))

    def _first_free(self, now: float) -> float:
        """Seconds until the first of all slots is free, as far as can be told."""
        expected = self._pace(now) * self._slots
        flights = [flight for worker in self.workers if worker.count for flight in worker.in_flight.values()]
        left = (max(0.0, expected * flight.tokens - flight.slot_seconds(now)) / flight.threads for flight in flights)
        return min(left, default=0.0)

    def _send(self, worker: Slots, batch: Sequence[WaitingWindow], now: float) -> None:
        self._numbers += 1
        alone = not worker.in_flight and not len(self._scheduler)
        worker.in_flight[self._numbers] = InFlight(batch, now, worker.count if alone else 1)
        self._note(batch, now)
        worker.send(Batch(self._numbers, rows_of(batch), alone))

    def _note(self, batch: Sequence[WaitingWindow], now: float) -> None:
        lengths = [window.length for window in batch]
        self._computed += Load(
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
