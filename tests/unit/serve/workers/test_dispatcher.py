"""Accepted requests are answered: the real dispatcher with workers of a known speed, in simulated time."""

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from berth.runtime.engines.engine import WindowTokens
from berth.serve.errors import ServeError
from berth.serve.limits import RequestLimits
from berth.serve.user_code.context import HandlerInput
from berth.serve.workers.dispatcher import Dispatcher, Slots
from berth.serve.workers.messages import Batch, JobRow
from berth.serve.workers.scheduler import QueuedJob

LIMIT = 55.0
CHECK_INTERVAL = 0.5
"""Seconds between the pool's checks for late requests."""


@dataclass
class Simulation:
    """Simulates workers whose batches take `cost(batch)` seconds, and counts the statuses of the requests."""

    rows: list[JobRow]
    cost: Callable[[Batch], float]
    workers: int = 1
    slots: int = 1
    batch_rows: int = 1
    warm_up: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)

    last_answer: float = 0.0

    def run(self, times: Iterable[float]) -> "Simulation":
        dispatcher = Dispatcher(RequestLimits())
        if self.warm_up:
            dispatcher.speed.begin(self.warm_up)
        number = itertools.count()
        now = 0.0
        waiting: dict[int, QueuedJob] = {}

        def send_to(name: int) -> Callable[[Batch], None]:
            return lambda batch: heapq.heappush(events, (now + self.cost(batch), next(number), "done", (name, batch)))

        for name in range(self.workers):
            dispatcher.workers.append(Slots(send_to(name), self.slots, self.batch_rows))
        events: list[tuple[float, int, str, Any]] = [(at, next(number), "arrival", None) for at in times]
        heapq.heapify(events)
        heapq.heappush(events, (CHECK_INTERVAL, next(number), "check", None))
        while events:
            now, _, kind, what = heapq.heappop(events)
            for each in [each for each in waiting.values() if now > each.deadline]:
                self._end(504, waiting, each)
                dispatcher.drop(each)
            match kind:
                case "arrival":
                    request = QueuedJob(list(self.rows), now, now + LIMIT, repeatable=False)
                    try:
                        dispatcher.accept(request, now)
                        waiting[id(request)] = request
                    except ServeError:
                        self.statuses[503] += 1
                case "done":
                    name, batch = what
                    for request in dispatcher.complete(dispatcher.workers[name], batch.number, batch.rows, now):
                        if id(request) in waiting:
                            self._end(200, waiting, request)
                            self.last_answer = now
                    dispatcher.dispatch(now)
                case "check":
                    for request, _ in dispatcher.refuse_late(now):
                        self._end(503, waiting, request)
                    if events:
                        heapq.heappush(events, (now + CHECK_INTERVAL, next(number), "check", None))
        assert not waiting
        return self

    def _end(self, status: int, waiting: dict[int, QueuedJob], request: QueuedJob) -> None:
        del waiting[id(request)]
        self.statuses[status] += 1


def handler(seconds: Callable[[], float], **others: Any) -> Simulation:
    return Simulation([HandlerInput(b"", {})], lambda _: seconds(), **others)


def every(seconds: float, count: int) -> Iterator[float]:
    return (number * seconds for number in range(count))


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.5, 2.0, 5.0, 9.0, 10.0, 20.0, 26.0, 28.0, 40.0, 54.0])
@pytest.mark.parametrize("gap", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("workers", [1, 4])
def test_no_request_of_a_slow_handler_times_out(seconds: float, gap: float, workers: int) -> None:
    simulation = handler(lambda: seconds, workers=workers).run(every(gap, 200))
    assert simulation.statuses[504] == 0
    assert simulation.statuses[200] >= min(200, workers * max(1, LIMIT / 2 // seconds))


def test_every_request_of_a_fast_handler_is_answered() -> None:
    simulation = handler(lambda: 0.001).run([0.0] * 64 + [0.1] * 64 + list(every(0.01, 1000)))
    assert simulation.statuses == {200: 1128}


def test_no_request_of_a_handler_with_varying_cost_times_out() -> None:
    dice = random.Random(0)
    mixed = handler(lambda: 10.0 if dice.random() < 0.1 else 0.001).run(every(0.5, 2000))
    even = handler(lambda: dice.uniform(0.5, 8.0)).run(every(0.5, 1000))
    costs = iter([0.001] * 20 + [5.0] * 10_000)
    slower = handler(lambda: next(costs)).run(every(0.05, 4000))
    assert mixed.statuses[504] + even.statuses[504] + slower.statuses[504] == 0
    # Workers that are never idle could answer about 900, 130 and 60.
    assert mixed.statuses[200] > 700
    assert even.statuses[200] > 110
    assert slower.statuses[200] > 55


def model(tokens_per_second: float, **others: Any) -> Simulation:
    window = WindowTokens(np.zeros(384, np.int32), None)
    return Simulation([window], lambda batch: sum(row.length for row in batch.rows) / tokens_per_second, **others)


@pytest.mark.slow
@pytest.mark.parametrize("warm_up", [1 / 150, 1 / 600, 1 / 4000], ids=["slower", "right", "faster"])
@pytest.mark.parametrize("gap", [0.005, 0.1, 0.3])
def test_accepted_requests_of_bert_base_are_answered_at_full_speed(warm_up: float, gap: float) -> None:
    simulation = model(600, batch_rows=4, warm_up=warm_up).run(every(gap, int(120 / gap)))
    assert simulation.statuses[504] == 0
    # Its speed is known from the first batch on, and its queue is never empty.
    assert simulation.statuses[200] >= 0.95 * 600 / 384 * simulation.last_answer
