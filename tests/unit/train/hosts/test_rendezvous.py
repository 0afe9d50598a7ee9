"""Hosts that meet over real sockets on 127.0.0.1; the name of every host resolves to this machine."""

import json
import socket
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from berth.contract.errors import JobError
from berth.train.hosts.events import Events, Signalled
from berth.train.hosts.outcome import Outcome, outcome_fields
from berth.train.hosts.rendezvous import Introduction, Leader, Stopped, join
from berth.train.hosts.wire import LineSocket
from berth.train.launching.session import LeaderLoop, WorkerLoop
from tests.unit.train.hosts.hosts_here import LEADER, MESSAGES, WORKER, FakeHost, meeting, resolve_to_loopback, timeless


@pytest.mark.slow
def test_gather_timeout_names_missing_host_on_all_hosts() -> None:
    with meeting(("localhost", "algo-3")) as (leader, events):
        worker = FakeHost("localhost", SimpleQueue(), None)
        outcomes: list[Outcome] = []

        def run_worker() -> None:
            connection = join(LEADER, Introduction("localhost", 1), worker.events, 5, leader.port)
            outcomes.append(WorkerLoop(connection, worker).run())

        thread = threading.Thread(target=run_worker, daemon=True)
        thread.start()
        begin = time.monotonic()
        outcome = LeaderLoop(leader, FakeHost(LEADER, events), everywhere=False).run(1)
        thread.join(5)
    assert time.monotonic() - begin < 4
    assert outcome.report is not None
    assert outcome.report.sentence.startswith("host algo-3 did not join the leader 127.0.0.1 within 1 s")
    assert timeless(outcomes[0]) == timeless(outcome)


@pytest.mark.slow
def test_unreachable_leader_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(
        JobError, match=r"localhost could not reach the leader 127\.0\.0\.1 on port \d+ within 1 s .*refused"
    ):
        join(LEADER, Introduction("localhost", 1), SimpleQueue(), 1, port)


def test_signal_ends_join_and_gather() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    worker_events: Events = SimpleQueue()
    worker_events.put(Signalled(15))
    with pytest.raises(Stopped):
        join(LEADER, Introduction("localhost", 1), worker_events, 30, port)
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
    with meeting(("localhost", "algo-3")) as (leader, _):
        connection = join(LEADER, Introduction("localhost", 1), worker.events, 5, leader.port)
        worker.events.put(Signalled(15))
        thread = threading.Thread(target=WorkerLoop(connection, worker).run, daemon=True)
        thread.start()
        with pytest.raises(
            JobError, match="localhost stopped before all hosts had joined: the job was stopped by a signal"
        ):
            leader.gather(5)
        leader.broadcast("outcome", **outcome_fields(Outcome(0), 0.0))
        thread.join(5)


def test_worker_that_joins_after_a_failure_gets_the_outcome() -> None:
    worker = FakeHost("localhost", SimpleQueue())
    outcomes: list[Outcome] = []

    def join_late() -> None:
        connection = join(LEADER, Introduction("localhost", 1), worker.events, 5, leader.port)
        outcomes.append(WorkerLoop(connection, worker).run())

    with meeting() as (leader, _):
        timer = threading.Timer(0.5, join_late)
        timer.start()
        begin = time.monotonic()
        leader.dismiss(outcome_fields(Outcome(3), 0.0), begin + 30)
        assert 0.5 < time.monotonic() - begin < 4
        timer.join(5)
    assert outcomes == [Outcome(3)]


def test_dismiss_does_not_wait_after_the_deadline_or_a_signal() -> None:
    for seconds_left, signals in ((0.0, []), (30.0, [Signalled(15)])):
        with meeting() as (leader, events):
            for event in signals:
                events.put(event)
            begin = time.monotonic()
            leader.dismiss(outcome_fields(Outcome(3), 0.0), begin + seconds_left)
            assert time.monotonic() - begin < 1


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
    leader = Leader(LEADER, (WORKER,), SimpleQueue(), port=0, resolve=resolve)
    try:
        with socket.create_connection((LEADER, leader.port), timeout=5) as sock:
            sock.sendall(json.dumps(hello).encode() + b"\n")
            assert LineSocket(sock, 5).receive() == ("refused", {"reason": reason})
        assert not leader.introductions
    finally:
        leader.close()


def test_host_name_can_join_only_once() -> None:
    with meeting() as (leader, _):
        join(LEADER, Introduction("localhost", 1, "mine"), SimpleQueue(), 5, leader.port)
        with pytest.raises(JobError, match="localhost has joined already"):
            join(LEADER, Introduction("localhost", 1, "another"), SimpleQueue(), 0.1, leader.port)
        assert leader.introductions["localhost"].host_key == "mine"
