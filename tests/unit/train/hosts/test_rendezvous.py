"""Hosts that meet over real sockets on 127.0.0.1; the name of every host resolves to this machine."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import pytest

from berth.contract.errors import JobError
from berth.train.hosts.events import Events, Signalled
from berth.train.hosts.outcome import Outcome, outcome_fields
from berth.train.hosts.rendezvous import Introduction, Leader, Stopped, join
from berth.train.hosts.wire import LineSocket
from berth.train.launching.session import LeaderLoop, WorkerLoop
from tests.ports import free_port
from tests.unit.train.hosts.hosts_here import (
    LEADER,
    MESSAGES,
    FakeHost,
    meeting,
    peer,
    resolve_to_loopback,
    send,
    timeless,
)


def run_worker(leader: Leader, worker: FakeHost, after: float = 0.0) -> Outcome:
    """Join after some seconds and run to the end."""
    time.sleep(after)
    connection = join(LEADER, Introduction("localhost", 1), worker.events, 5, leader.port)
    return WorkerLoop(connection, worker).run()


@pytest.mark.slow
def test_gather_timeout_names_missing_host_on_all_hosts() -> None:
    with meeting(("localhost", "algo-3")) as (leader, events), ThreadPoolExecutor() as pool:
        of_worker = pool.submit(run_worker, leader, FakeHost("localhost", SimpleQueue(), None))
        begin = time.monotonic()
        outcome = LeaderLoop(leader, FakeHost(LEADER, events), everywhere=False).run(1)
        assert timeless(of_worker.result(5)) == timeless(outcome)
    assert time.monotonic() - begin < 4
    assert outcome.report.sentence.startswith("host algo-3 did not join the leader 127.0.0.1 within 1 s")


@pytest.mark.slow
def test_unreachable_leader_is_named() -> None:
    with pytest.raises(
        JobError, match=r"localhost could not reach the leader 127\.0\.0\.1 on port \d+ within 1 s .*refused"
    ):
        join(LEADER, Introduction("localhost", 1), SimpleQueue(), 1, free_port())


def test_signal_ends_join_and_gather() -> None:
    worker_events: Events = SimpleQueue()
    worker_events.put(Signalled(15))
    with pytest.raises(Stopped):
        join(LEADER, Introduction("localhost", 1), worker_events, 30, free_port())
    with meeting() as (leader, leader_events):
        leader_events.put(Signalled(15))
        with pytest.raises(Stopped):
            leader.gather(30)


def test_gather_waits_for_a_late_worker() -> None:
    introduction = Introduction("localhost", 1, "key", 22)
    with meeting() as (leader, _):
        threading.Timer(0.3, lambda: join(LEADER, introduction, SimpleQueue(), 5, leader.port)).start()
        leader.gather(5)
        assert leader.introductions["localhost"] == introduction


def test_gather_reports_why_a_worker_stopped() -> None:
    worker = FakeHost("localhost", SimpleQueue(), None, programs_after=9)
    with meeting(("localhost", "algo-3")) as (leader, _), ThreadPoolExecutor() as pool:
        pool.submit(run_worker, leader, worker)
        threading.Timer(0.5, worker.events.put, [Signalled(15)]).start()
        with pytest.raises(
            JobError, match="localhost stopped before all hosts had joined: the job was stopped by a signal"
        ):
            leader.gather(5)
        leader.broadcast("outcome", **outcome_fields(Outcome(0), 0.0))


def test_worker_that_joins_after_a_failure_gets_the_outcome() -> None:
    with meeting() as (leader, _), ThreadPoolExecutor() as pool:
        of_worker = pool.submit(run_worker, leader, FakeHost("localhost", SimpleQueue()), 0.5)
        begin = time.monotonic()
        leader.dismiss(outcome_fields(Outcome(3), 0.0), begin + 30)
        assert 0.5 < time.monotonic() - begin < 4
        assert of_worker.result(5) == Outcome(3)


def test_dismiss_does_not_wait_after_the_deadline_or_a_signal() -> None:
    for seconds_left, signals in ((0.0, []), (30.0, [Signalled(15)])):
        with meeting() as (leader, events):
            for event in signals:
                events.put(event)
            begin = time.monotonic()
            leader.dismiss(outcome_fields(Outcome(3), 0.0), begin + seconds_left)
            assert time.monotonic() - begin < 5


def test_many_hosts_are_abbreviated_in_an_error() -> None:
    names = sorted(f"algo-{number}" for number in range(2, 41))
    with meeting(tuple(names)) as (leader, _):
        for name in names[:-1]:  # all but algo-9
            join(LEADER, Introduction(name, 1), SimpleQueue(), 5, leader.port)
        with pytest.raises(JobError, match=r"^host algo-9 did not join .* within 0 s"):
            leader.gather(0.2)
        join(LEADER, Introduction("algo-9", 1), SimpleQueue(), 5, leader.port)
        leader.gather(5)
    with meeting(tuple(names)) as (leader, _):
        with pytest.raises(JobError, match=r"^hosts algo-2, .* algo-7 and 33 more did not join the leader"):
            leader.gather(0)


HELLO = {"kind": "hello", **MESSAGES["hello"]}
REFUSED = {
    "unknown host": ({**HELLO, "host": "algo-9"}, resolve_to_loopback, "'algo-9' is not a host of this job"),
    "other address": (HELLO, lambda host: {"10.9.8.7"}, "localhost resolves to 10.9.8.7 here, not to 127.0.0.1"),
    "name without address": (HELLO, lambda host: set(), "localhost resolves to nothing here, not to 127.0.0.1"),
}


@pytest.mark.parametrize(("hello", "resolve", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_hello_is_refused(hello: dict[str, Any], resolve: Callable[[str], set[str]], reason: str) -> None:
    with meeting(resolve=resolve) as (leader, _), peer(leader) as sock:
        send(sock, json.dumps(hello).encode())
        assert LineSocket(sock, 5).receive() == ("refused", {"reason": reason})
        assert not leader.introductions


def test_host_name_can_join_only_once() -> None:
    with meeting() as (leader, _):
        join(LEADER, Introduction("localhost", 1, "mine"), SimpleQueue(), 5, leader.port)
        with pytest.raises(JobError, match="localhost has joined already"):
            join(LEADER, Introduction("localhost", 1, "another"), SimpleQueue(), 0.1, leader.port)
        assert leader.introductions["localhost"].host_key == "mine"
