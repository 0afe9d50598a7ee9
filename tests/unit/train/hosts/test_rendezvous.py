"""Hosts meeting over real sockets on 127.0.0.1: every host's name is an address of this machine."""

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
from tests.unit.train.hosts.hosts_here import LEADER, MESSAGES, WORKER, FakeHost, here, meeting, timeless


def test_missing_host_is_named_at_the_deadline_and_those_who_came_hear_it() -> None:
    with meeting(("localhost", "algo-3")) as (leader, events):
        lead = FakeHost(LEADER, events)
        own: Events = SimpleQueue()
        follow = FakeHost("localhost", own, None)
        worker: dict[str, Outcome] = {}

        def run_worker() -> None:
            connection = join(LEADER, Introduction("localhost", 1), own, 5, leader.port)
            worker["outcome"] = WorkerLoop(connection, follow).run()

        thread = threading.Thread(target=run_worker, daemon=True)
        thread.start()
        begin = time.monotonic()
        outcome = LeaderLoop(leader, lead, everywhere=False).run(1)
        thread.join(5)
    assert time.monotonic() - begin < 4
    assert outcome.report is not None
    assert outcome.report.sentence.startswith("host algo-3 never came to the rendezvous at 127.0.0.1 within 1 s")
    assert timeless(worker["outcome"]) == timeless(outcome)


def test_leader_that_never_answers_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(
        JobError, match=r"localhost could not reach the leader 127\.0\.0\.1 on port \d+ within 1 s .*refused"
    ):
        join(LEADER, Introduction("localhost", 1), SimpleQueue(), 1, port)


def test_signal_ends_the_waiting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    events: Events = SimpleQueue()
    events.put(Signalled(15))
    with pytest.raises(Stopped):
        join(LEADER, Introduction("localhost", 1), events, 30, port)
    with meeting() as (leader, own):
        own.put(Signalled(15))
        with pytest.raises(Stopped):
            leader.gather(30)


def test_worker_that_comes_late_is_waited_for() -> None:
    own: Events = SimpleQueue()
    with meeting() as (leader, _):
        threading.Timer(0.5, lambda: join(LEADER, Introduction("localhost", 1, "key", 22), own, 5, leader.port)).start()
        leader.gather(5)
        assert leader.introductions["localhost"] == Introduction("localhost", 1, "key", 22)


def test_a_host_that_stops_before_all_have_come_says_why() -> None:
    own: Events = SimpleQueue()
    with meeting(("localhost", "algo-3")) as (leader, _):
        connection = join(LEADER, Introduction("localhost", 1), own, 5, leader.port)
        own.put(Signalled(15))
        thread = threading.Thread(
            target=WorkerLoop(connection, FakeHost("localhost", own, None, programs_after=9)).run, daemon=True
        )
        thread.start()
        with pytest.raises(
            JobError, match="localhost stopped before all hosts had come: the job was stopped by a signal"
        ):
            leader.gather(5)
        leader.broadcast("outcome", **outcome_fields(Outcome(0), 0.0))
        thread.join(5)


def test_a_host_that_comes_after_the_job_has_failed_is_told_why() -> None:
    own: Events = SimpleQueue()
    heard: list[Outcome] = []

    def come_late() -> None:
        time.sleep(1.0)
        connection = join(LEADER, Introduction("localhost", 1), own, 5, leader.port)
        heard.append(WorkerLoop(connection, FakeHost("localhost", own)).run())

    with meeting() as (leader, _):
        thread = threading.Thread(target=come_late, daemon=True)
        thread.start()
        begin = time.monotonic()
        leader.dismiss(outcome_fields(Outcome(3), 0.0), begin + 30)
        assert 1.0 < time.monotonic() - begin < 4
        thread.join(5)
    assert heard == [Outcome(3)]


def test_nobody_is_waited_for_after_the_deadline_or_a_signal() -> None:
    for late, signals in ((0.0, []), (30.0, [Signalled(15)])):
        with meeting() as (leader, events):
            for event in signals:
                events.put(event)
            begin = time.monotonic()
            leader.dismiss(outcome_fields(Outcome(3), 0.0), begin + late)
            assert time.monotonic() - begin < 1


def test_of_many_hosts_the_missing_ones_are_told_by_number_and_those_that_came_in_one_line(
    capfd: pytest.CaptureFixture[str],
) -> None:
    names = sorted(f"algo-{number}" for number in range(2, 41))
    with meeting(tuple(names)) as (leader, _):
        for name in names[:-1]:  # all but algo-9
            join(LEADER, Introduction(name, 1), SimpleQueue(), 5, leader.port)
        with pytest.raises(JobError, match=r"^host algo-9 never came .* within 0 s"):
            leader.gather(0.2)
        join(LEADER, Introduction("algo-9", 1), SimpleQueue(), 5, leader.port)
        leader.gather(5)
    assert capfd.readouterr().out == "berth: rendezvous: all 39 workers have joined\n"
    with meeting(tuple(names)) as (leader, _):
        with pytest.raises(JobError, match=r"^hosts algo-2, .* algo-7 and 33 more never came to the rendezvous"):
            leader.gather(0)


HELLO = {"kind": "hello", **MESSAGES["hello"]}
REFUSED = {
    "a stranger": ({**HELLO, "host": "algo-9"}, here, "'algo-9' is not a host of this job"),
    "from another address": (HELLO, lambda host: {"10.9.8.7"}, "localhost resolves to 10.9.8.7 here, not to 127.0.0.1"),
    "a name without address": (HELLO, lambda host: set(), "localhost resolves to nothing here, not to 127.0.0.1"),
}


@pytest.mark.parametrize(("hello", "resolve", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(hello: dict[str, Any], resolve: Callable[[str], set[str]], reason: str) -> None:
    leader = Leader(LEADER, (WORKER,), SimpleQueue(), port=0, resolve=resolve)
    try:
        with socket.create_connection((LEADER, leader.port), timeout=5) as sock:
            sock.sendall(json.dumps(hello).encode() + b"\n")
            assert LineSocket(sock, 5).receive() == ("refused", {"reason": reason})
        assert not leader.introductions
    finally:
        leader.close()


def test_a_name_is_believed_once() -> None:
    with meeting() as (leader, _):
        join(LEADER, Introduction("localhost", 1, "mine"), SimpleQueue(), 5, leader.port)
        with pytest.raises(JobError, match="localhost has joined already"):
            join(LEADER, Introduction("localhost", 1, "another"), SimpleQueue(), 0.1, leader.port)
        assert leader.introductions["localhost"].host_key == "mine"
