"""The order of windows: by arrival, later windows of long requests after short requests, similar lengths together."""

import numpy as np

from berth.runtime.engines.engine import WindowTokens
from berth.serve.workers.scheduler import QueuedJob, Scheduler, WaitingWindow, finish

PACE = 0.001  # seconds for a token


def request(*lengths: int, arrived: float = 0.0, deaths: int = 0) -> QueuedJob:
    windows = [WindowTokens(np.zeros(length, np.int32), None) for length in lengths]
    return QueuedJob(windows, arrived, deaths=deaths)


def scheduler(*requests: QueuedJob) -> Scheduler:
    queue = Scheduler()
    for each in requests:
        queue.add(each, PACE)
    return queue


def turns(queue: Scheduler, most: int = 1, slots: int = 1) -> list[list[WaitingWindow]]:
    batches = []
    while batch := queue.next_batch(most, slots, idle=True):
        batches.append(batch)
    return batches


def test_windows_run_in_order_of_arrival() -> None:
    first, second = request(100, arrived=1.0), request(300, arrived=2.0)
    assert [batch[0].job for batch in turns(scheduler(second, first))] == [first, second]


def test_short_requests_overtake_a_long_one() -> None:
    long = request(*[300] * 10)
    short = [request(100, arrived=1.0), request(100, arrived=2.0)]
    order = [batch[0].job for batch in turns(scheduler(long, *short))]
    # The turns of its windows are at 0, 0.3, 0.6, 0.9, 1.2 …: a request that arrives at 1 s is before the fifth.
    assert order == [*[long] * 4, short[0], *[long] * 3, short[1], *[long] * 3]


def test_long_request_is_not_overtaken_for_ever() -> None:
    """Short requests arrive as fast as they are answered, and the last window of the long one still gets its turn."""
    queue = scheduler(long := request(*[300] * 10))
    now, left = 0.0, 10
    for _ in range(1000):
        queue.add(request(100, arrived=now), PACE)
        (window,) = queue.next_batch(1, 1, idle=True)
        now += window.length * PACE
        left -= window.job is long
        if not left:
            break
    assert left == 0
    assert now < 3 * 10 * 300 * PACE


def test_batch_has_windows_of_similar_length_in_order() -> None:
    requests = [request(length, arrived=float(at)) for at, length in enumerate((200, 90, 205, 380, 195, 190, 201))]
    batches = turns(scheduler(*requests), most=4)
    assert [[window.length for window in batch] for batch in batches] == [[200, 205, 195, 190], [90], [380], [201]]


def test_batch_leaves_windows_for_every_slot() -> None:
    requests = [request(200, arrived=float(at)) for at in range(7)]
    assert [len(batch) for batch in turns(scheduler(*requests), most=4, slots=2)] == [3, 2, 1, 1]


def test_scheduler_counts_waiting_tokens() -> None:
    queue = scheduler(request(100, 50), dropped := request(30, 30, 30))
    assert (queue.tokens, len(queue)) == (240, 5)
    queue.drop(dropped)
    assert (queue.tokens, len(queue)) == (150, 2)
    queue.next_batch(1, 1, idle=True)
    assert queue.tokens == 50


def test_job_over_which_a_worker_died_runs_alone() -> None:
    suspect, other = request(100, 100, deaths=1), request(100, arrived=1.0)
    queue = scheduler(suspect, other)
    assert queue.next_batch(4, 1, idle=False) == []
    assert [window.job for window in queue.next_batch(4, 1, idle=True)] == [suspect]
    clean = scheduler(request(100), request(100, arrived=0.5, deaths=1), request(100, arrived=1.0))
    assert [window.job.deaths for window in clean.next_batch(4, 1, idle=True)] == [0, 0]


def test_job_is_complete_with_its_last_window_and_computed_once() -> None:
    queue = scheduler(one := request(100, 200))
    (first,), (second,) = queue.next_batch(1, 1, idle=True), queue.next_batch(1, 1, idle=True)
    assert finish([second], ["b"]) == []
    queue.add(one, PACE)  # as after the death of the worker that had the first window
    assert [window.index for window in queue.next_batch(4, 1, idle=True)] == [first.index]
    assert finish([first], ["a"]) == [one]
    assert [one.results[index] for index in range(2)] == ["a", "b"]
