"""The pool with worker doubles: results, deaths of workers, and requests that are given up."""

import ctypes
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from berth.runtime.engines.engine import WindowTokens
from berth.runtime.memory import WORKER_SCORE
from berth.serve.errors import Kind, ServeError
from berth.serve.limits import RequestLimits
from berth.serve.models.service import Service
from berth.serve.user_code.context import HandlerInput
from berth.serve.workers.pool import EngineError, WorkerPool
from berth.serve.workers.worker import WorkerSettings
from tests.unit.serve.workers.worker_double import DIES, FORKS, RAISES, SENDS_HALF, SLEEPS, SLOW, STARTS
from tests.waiting import until

_PR_SET_CHILD_SUBREAPER = 36
DOUBLE = [sys.executable, "-P", str(Path(__file__).parent / "worker_double.py")]


def row(first: int, length: int = 8) -> WindowTokens:
    return WindowTokens(np.full(length, first, np.int32), None)


@dataclass
class Callbacks:
    """What the pool has called back with."""

    ready: list[Any] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


Pools = Callable[..., tuple[WorkerPool, Callbacks]]


@pytest.fixture
def start() -> Iterator[Pools]:
    """Returns a function that starts a pool, and waits until its first worker is ready or the pool has failed."""
    pools = []

    def make(
        workers: int = 1,
        threads: int = 2,
        model: str = "model",
        seconds: float = 55.0,
        command: Sequence[str] = DOUBLE,
        **environment: str,
    ) -> tuple[WorkerPool, Callbacks]:
        settings = WorkerSettings(Path("/opt/ml") / model, threads, "cpu", environment)
        pool, callbacks = WorkerPool([settings] * workers, RequestLimits(seconds=seconds), command), Callbacks()
        pools.append(pool)
        pool.start()
        pool.set_callbacks(callbacks.ready.append, callbacks.failures.append)
        until(lambda: callbacks.ready or callbacks.failures)
        return pool, callbacks

    yield make
    for pool in pools:
        pool.stop()


def pids(pool: WorkerPool) -> list[int]:
    return [worker.process.pid for worker in pool._workers if worker.process]


def test_every_row_gets_its_own_logits(start: Pools) -> None:
    pool, callbacks = start(workers=2)
    futures = [pool.submit([row(100 * one + two, 8 + two) for two in range(7)]) for one in range(1, 21)]
    for one, future in enumerate(futures, start=1):
        logits = future.result(20)
        assert [(int(each.start[0]), len(each.end)) for each in logits] == [(100 * one + n, 8 + n) for n in range(7)]
    assert len(callbacks.ready) == 1
    assert pool.waiting_seconds == 0


@pytest.mark.slow
def test_requests_of_a_dead_worker_are_computed_by_the_next(start: Pools) -> None:
    pool, _ = start(threads=4)
    futures = [pool.submit([row(SLOW)]) for _ in range(12)]
    (old,) = pids(pool)
    os.kill(old, signal.SIGKILL)
    until(lambda: pids(pool) not in ([], [old]))
    assert not pool.available
    later = pool.submit([row(50)])
    assert [int(future.result(20)[0].start[0]) for future in (*futures, later)] == [SLOW] * 12 + [50]
    assert pool.available


@pytest.mark.slow
def test_only_the_request_that_kills_two_workers_is_given_up(start: Pools) -> None:
    pool, callbacks = start(threads=4)
    good = [pool.submit([row(SLOW)]) for _ in range(3)]
    poison = pool.submit([row(40), row(DIES)])
    good += [pool.submit([row(60)]) for _ in range(5)]
    sentence = r"2 workers in turn have died \(exit code 7\) over this request: it is given up"
    with pytest.raises(ServeError, match=sentence) as refused:
        poison.result(30)
    assert (refused.value.kind, refused.value.status) == (Kind.GIVEN_UP, 500)
    assert [int(future.result(20)[0].start[0]) for future in good] == [SLOW] * 3 + [60] * 5
    assert not callbacks.failures


def test_engine_error_fails_only_its_batch(start: Pools) -> None:
    pool, _ = start(threads=1)
    (before,) = pids(pool)
    failing = pool.submit([row(RAISES)] * 6)
    with pytest.raises(EngineError, match=r"(?s)ValueError: no rows.*Traceback: a line"):
        failing.result(20)
    assert int(pool.submit([row(70)]).result(20)[0].start[0]) == 70
    assert pids(pool) == [before]


def test_cancelled_request_is_not_computed(start: Pools) -> None:
    pool, _ = start(threads=1)
    running = pool.submit([row(SLOW)])
    dropped = pool.submit([row(DIES)] * 50)
    assert dropped.cancel()
    assert pool.waiting_seconds == 0
    assert running.result(20)
    assert pool.submit([row(80)]).result(20)


DIED = "the worker died while it loaded the model ({}): the lines above show what it did last"


@pytest.mark.parametrize(
    ("model", "command", "sentence"),
    [
        ("there are no weights", DOUBLE, "there are no weights"),
        ("dies", DOUBLE, DIED.format("exit code 9")),
        ("model", ["/no/python"], DIED.format("it can't be started: No such file or directory")),
    ],
    ids=["error of the worker", "death while loading", "no command"],
)
def test_pool_fails_if_no_worker_can_be_started(
    start: Pools, model: str, command: Sequence[str], sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    pool, callbacks = start(model=model, command=command)
    assert callbacks.failures == [sentence]
    assert "it is restarted" not in caplog.text, "no worker was ready, so another one would end in the same way"
    with pytest.raises(ServeError, match=re.escape(sentence)) as refused:
        pool.submit([row(1)])
    assert refused.value.status == 503


@pytest.mark.slow
def test_pool_fails_if_a_worker_can_not_restart(start: Pools, tmp_path: Path) -> None:
    pool, callbacks = start(model="dies later", STARTED=str(tmp_path / "started"))
    waiting = pool.submit([row(SLEEPS)])
    os.kill(pids(pool)[0], signal.SIGKILL)
    until(lambda: callbacks.failures)
    assert callbacks.failures[0].startswith("the worker died while it loaded the model (exit code 9)")
    with pytest.raises(ServeError, match="the worker died while it loaded the model"):
        waiting.result(20)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stuck", "number"),
    [
        (row(SLEEPS), 0),
        (HandlerInput(bytes(10_000_000), {}), signal.SIGSTOP),
        (row(SENDS_HALF), 0),
        (row(FORKS), 0),
    ],
    ids=["computes", "does not read", "sends half of a message", "a child holds the socket"],
)
def test_stuck_worker_is_killed_and_replaced(start: Pools, stuck: Any, number: int) -> None:
    """`number`: the signal that the worker gets first; 0 is none."""
    pool, _ = start(threads=1, seconds=1.0)
    (old,) = pids(pool)
    os.kill(old, number)
    future = pool.submit([stuck], repeatable=False)
    assert pool.available
    assert not future.done(), "submit waited for the worker"
    until(lambda: pids(pool) not in ([], [old]))
    with pytest.raises(ServeError, match=r"the worker has died \(SIGKILL\) over this request"):
        future.result(20)
    until(lambda: pool.available)
    assert int(pool.submit([row(60)]).result(20)[0].start[0]) == 60


@pytest.fixture
def parent_of_orphans() -> Iterator[None]:
    """Makes this process the parent of orphans, as process 1 of a container is."""
    become = ctypes.CDLL(None).prctl
    become(_PR_SET_CHILD_SUBREAPER, 1)
    yield
    become(_PR_SET_CHILD_SUBREAPER, 0)


@pytest.mark.usefixtures("parent_of_orphans")
def test_child_processes_end_with_their_worker_without_a_zombie(start: Pools) -> None:
    pool, _ = start(threads=1)
    (child,) = pool.submit([row(STARTS)]).result(20)
    os.kill(pids(pool)[0], signal.SIGKILL)
    until(lambda: not Path(f"/proc/{int(child.start[0])}").exists())


def test_worker_has_a_higher_oom_score_than_the_server(start: Pools) -> None:
    pool, _ = start()
    until(lambda: Path(f"/proc/{pids(pool)[0]}/oom_score_adj").read_text() == f"{WORKER_SCORE}\n")


def reset_peak(pid: int) -> int:
    """Reset the peak memory of a process; returns its memory in bytes."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak(pid)


def peak(pid: int) -> int:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


@pytest.mark.slow
@pytest.mark.parametrize("size", [25_000_000, 100_000_000])
def test_large_body_is_not_copied_on_its_way_to_the_worker(start: Pools, size: int) -> None:
    pool, _ = start(threads=1)
    processes = [os.getpid(), *pids(pool)]
    growths = []
    for _ in range(4):
        before = [reset_peak(pid) for pid in processes]
        (answer,) = pool.submit([HandlerInput(bytes(size), {})], repeatable=False).result(60)
        assert len(answer.body) == size
        del answer
        growths.append(max(peak(pid) - base for pid, base in zip(processes, before, strict=True)))
    # On a busy machine an answer may arrive before the sending thread has freed the request.
    assert min(growths[1:]) < 1.3 * size


def test_slow_on_ready_callback_does_not_block_requests(start: Pools) -> None:
    pool, _ = start()
    callback_started, may_return = threading.Event(), threading.Event()

    def on_ready(_ready: Any) -> None:
        callback_started.set()
        may_return.wait(20)

    thread = threading.Thread(target=pool.set_callbacks, args=(on_ready, print), daemon=True)
    thread.start()
    assert callback_started.wait(20)
    assert pool.available
    assert int(pool.submit([row(70)]).result(20)[0].start[0]) == 70
    assert thread.is_alive(), "the request waited for the callback"
    may_return.set()


def test_service_fails_if_it_can_not_use_the_workers_model(start: Pools) -> None:
    """The double's tokenizer is invalid."""
    pool, _ = start()
    service, failed = Service(pool, RequestLimits()), threading.Event()
    service.start(failed.set)
    assert failed.wait(20)
    assert service.failure is not None
    assert "the server can't use the model (" in service.failure


def test_overload_is_refused_with_retry_after(start: Pools) -> None:
    pool, _ = start(threads=1)
    pool._dispatcher.speed.begin(0.01)
    accepted = [pool.submit([row(SLEEPS)]), pool.submit([row(90, 3000)])]
    with pytest.raises(ServeError, match="the model has work for 30 s already: ") as refused:
        pool.submit([row(90)])
    # After 3 s less than 27.5 s of work are left, which is half of the time limit.
    assert (refused.value.status, refused.value.retry_after) == (503, 3)
    assert refused.value.body()["retry_after"] == 3
    assert not any(future.done() for future in accepted)
