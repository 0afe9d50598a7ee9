"""The queue before the model's thread: its order, its bounds, and what leaves it early."""

import threading

import pytest

from berth.serve.errors import ServeError
from berth.serve.handler import PreparedRequest
from berth.serve.jobs import Jobs
from berth.serve.limits import RequestLimits
from berth.serve.request import Parameters, Question, Request


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
def jobs(clock: Clock) -> Jobs:
    """A queue whose model has just done 1,000 tokens in 10 seconds."""
    made = Jobs(RequestLimits(), clock)
    made.put(prepared(1000))
    made.take()
    clock.now += 10
    made.finish(answered=True)
    return made


def test_jobs_come_out_in_order(jobs: Jobs) -> None:
    futures = [jobs.put(prepared(tokens)) for tokens in (1, 2, 3)]
    taken = []
    for _ in futures:
        job, future = jobs.take()
        taken.append((job.tokens, future))
        jobs.finish(answered=True)
    assert taken == list(zip((1, 2, 3), futures, strict=True))


def test_the_model_waits_for_a_job() -> None:
    jobs = Jobs(RequestLimits())
    taken: list[int] = []
    thread = threading.Thread(target=lambda: taken.append(jobs.take()[0].tokens))
    thread.start()
    jobs.put(prepared(7))
    thread.join(10)
    assert taken == [7]


def test_a_cancelled_job_leaves_the_queue(jobs: Jobs) -> None:
    first, second = jobs.put(prepared(100)), jobs.put(prepared(200))
    assert jobs.wait() == pytest.approx(3)
    assert first.cancel()
    assert jobs.wait() == pytest.approx(2)
    assert jobs.take()[1] is second


def test_a_job_can_be_cancelled_while_the_model_works(jobs: Jobs) -> None:
    waiting = jobs.put(prepared(100))
    _, future = jobs.take()
    assert future is waiting
    assert future.cancel()
    assert future.cancelled()


def test_the_wait_is_that_of_all_work_before(jobs: Jobs, clock: Clock) -> None:
    jobs.put(prepared(1000))
    jobs.put(prepared(500))
    jobs.take()
    assert jobs.wait() == pytest.approx(15)
    clock.now += 4
    assert jobs.wait() == pytest.approx(11)
    clock.now += 20  # longer than thought
    assert jobs.wait() == pytest.approx(5)


def test_what_would_wait_too_long_is_refused(jobs: Jobs) -> None:
    jobs.put(prepared(6000))
    jobs.put(prepared(1500))  # the wait is a minute, and no more
    with pytest.raises(ServeError) as caught:
        jobs.put(prepared(1))
    assert (caught.value.status, caught.value.body(), caught.value.headers()) == (
        503,
        {"error": "the model has work for 75 s already: send the request again later", "error_type": "overloaded"},
        {"retry-after": "15"},
    )


def test_a_request_of_the_largest_size_can_wait_behind_nothing(jobs: Jobs) -> None:
    jobs.put(prepared(RequestLimits().tokens))


def test_a_fast_model_has_a_bound_on_memory() -> None:
    jobs = Jobs(RequestLimits(tokens=1000))
    for _ in range(64):
        jobs.put(prepared(1000))
    with pytest.raises(ServeError, match="64000 tokens wait for the model already: send the request again later"):
        jobs.put(prepared(1000))


def test_cancelled_work_says_nothing_about_the_models_speed(jobs: Jobs, clock: Clock) -> None:
    jobs.put(prepared(1000))
    jobs.take()
    clock.now += 0.1
    jobs.finish(answered=False)
    jobs.put(prepared(100))
    assert jobs.wait() == pytest.approx(1)
