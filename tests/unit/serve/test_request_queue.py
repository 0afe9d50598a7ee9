"""The queue before the model's thread: its order, its bounds, and what leaves it early."""

import threading

import pytest

from berth.serve.errors import ServeError
from berth.serve.handler import PreparedRequest
from berth.serve.limits import RequestLimits
from berth.serve.request import Parameters, Question, Request
from berth.serve.request_queue import RequestQueue


def prepared(tokens: int) -> PreparedRequest:
    return PreparedRequest(Request((Question("a", "b"),), single=True, parameters=Parameters()), [], tokens)


class Clock:
    """Seconds that pass when the test says so."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(clock: Clock) -> RequestQueue:
    """A queue whose model has just done 1,000 tokens in 10 seconds."""
    made = RequestQueue(RequestLimits(), clock)
    made.put(prepared(1000))
    made.take()
    clock.now += 10
    made.finish(completed=True)
    return made


def test_requests_come_out_in_order(queue: RequestQueue) -> None:
    futures = [queue.put(prepared(tokens)) for tokens in (1, 2, 3)]
    taken = []
    for _ in futures:
        one, future = queue.take()
        taken.append((one.tokens, future))
        queue.finish(completed=True)
    assert taken == list(zip((1, 2, 3), futures, strict=True))


def test_the_model_waits_for_a_request() -> None:
    queue = RequestQueue(RequestLimits())
    taken: list[int] = []
    thread = threading.Thread(target=lambda: taken.append(queue.take()[0].tokens))
    thread.start()
    queue.put(prepared(7))
    thread.join(10)
    assert taken == [7]


def test_a_cancelled_request_leaves_the_queue(queue: RequestQueue) -> None:
    first, second = queue.put(prepared(100)), queue.put(prepared(200))
    assert queue.estimated_wait() == pytest.approx(3)
    assert first.cancel()
    assert queue.estimated_wait() == pytest.approx(2)
    assert queue.take()[1] is second


def test_a_request_can_be_cancelled_while_the_model_works(queue: RequestQueue) -> None:
    waiting = queue.put(prepared(100))
    _, future = queue.take()
    assert future is waiting
    assert future.cancel()
    assert future.cancelled()


def test_the_wait_is_that_of_all_work_before(queue: RequestQueue, clock: Clock) -> None:
    queue.put(prepared(1000))
    queue.put(prepared(500))
    queue.take()
    assert queue.estimated_wait() == pytest.approx(15)
    clock.now += 4
    assert queue.estimated_wait() == pytest.approx(11)
    clock.now += 20  # longer than thought
    assert queue.estimated_wait() == pytest.approx(5)


def test_what_would_wait_too_long_is_refused(queue: RequestQueue) -> None:
    queue.put(prepared(6000))
    queue.put(prepared(1500))  # the wait is a minute, and no more
    with pytest.raises(ServeError) as caught:
        queue.put(prepared(1))
    assert (caught.value.status, caught.value.body(), caught.value.headers()) == (
        503,
        {"error": "the model has work for 75 s already: send the request again later", "error_type": "overloaded"},
        {"retry-after": "15"},
    )


def test_a_request_of_the_largest_size_can_wait_behind_nothing(queue: RequestQueue) -> None:
    queue.put(prepared(RequestLimits().tokens))


def test_a_fast_model_has_a_bound_on_memory() -> None:
    queue = RequestQueue(RequestLimits(tokens=1000))
    for _ in range(64):
        queue.put(prepared(1000))
    with pytest.raises(ServeError, match="64000 tokens wait for the model already: send the request again later"):
        queue.put(prepared(1000))


def test_cancelled_work_says_nothing_about_the_models_speed(queue: RequestQueue, clock: Clock) -> None:
    queue.put(prepared(1000))
    queue.take()
    clock.now += 0.1
    queue.finish(completed=False)
    queue.put(prepared(100))
    assert queue.estimated_wait() == pytest.approx(1)
