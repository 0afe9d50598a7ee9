"""Hosts meeting over real sockets on 127.0.0.1: every host's name is an address of this machine."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import pytest

from berth.contract.errors import JobError
from berth.train import failure
from berth.train.failure import FailureReport
from berth.train.hosts.events import Events, Exited, HostPrepared, Lost, Message, Signalled
from berth.train.hosts.rendezvous import Introduction, Leader, Stopped, join
from berth.train.hosts.session import LeaderLoop, WorkerLoop
from berth.train.hosts.wire import LineSocket
from berth.train.outcome import Outcome, outcome_fields

LEADER, WORKERS = "127.0.0.1", ("localhost",)


def here(host: str) -> set[str]:
    return {"127.0.0.1"}


@contextlib.contextmanager
def meeting(workers: tuple[str, ...] = WORKERS, silence: float = 10.0) -> Iterator[tuple[Leader, Events]]:
    events: Events = SimpleQueue()
    leader = Leader(LEADER, workers, events, port=0, silence=silence, resolve=here)
    try:
        yield leader, events
    finally:
        leader.close()


class Host:
    """A host whose program is a few lines of the test: what the loops act on, and what they did."""

    def __init__(
        self,
        name: str,
        events: Events,
        code: int | None = 0,
        reports: tuple[FailureReport, ...] = (),
        programs_after: int = 0,
    ) -> None:
        self.events, self.code = events, code
        self.programs_after = programs_after  # signals that find no program yet
        self.stopped = 0
        self.finished: list[Outcome] = []
        self.signals: list[int] = []
        self.error: str | None = None
        self.name, self._reports = name, reports

    def prepare(self) -> None:
        self.events.put(HostPrepared(self.error))

    def start(self) -> None:
        if self.code is not None:
            self.events.put(Exited(self.code))

    def stop(self) -> None:
        self.stopped += 1

    def signal(self, number: int) -> int:
        self.signals.append(number)
        if len(self.signals) <= self.programs_after:
            return 0
        self.events.put(Exited(-number))
        return 1

    def reports(self) -> list[FailureReport]:
        return list(self._reports)

    def launcher_output(self) -> list[str]:
        return ["-----", "it said this"]

    def finish(self, outcome: Outcome) -> None:
        self.finished.append(outcome)

    def admit(self, leader: Leader) -> dict[str, str]:
        return {"key": "k", "master_port": "1"}

    def accept(self, welcome: Mapping[str, Any]) -> None:
        pass


class Job:
    """One leader and one worker, each in a thread of its own."""

    def __init__(
        self, leader: Leader, events: Events, lead: Host, follow: Callable[[Events], Host], everywhere: bool
    ) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.ended: dict[str, float] = {}
        self.worker_events: Events = SimpleQueue()
        self.worker = follow(self.worker_events)
        self.lead = lead

        def run_leader() -> None:
            self.outcomes["leader"] = LeaderLoop(leader, lead, events, everywhere=everywhere).run(5)
            self.ended["leader"] = time.monotonic()

        def run_worker() -> None:
            introduction = Introduction(host="localhost", ranks=1)
            self.connection = join(LEADER, introduction, self.worker_events, 5, leader.port)
            self.outcomes["worker"] = WorkerLoop(self.connection, self.worker, self.worker_events).run()
            self.ended["worker"] = time.monotonic()

        self.threads = [threading.Thread(target=run, daemon=True) for run in (run_leader, run_worker)]
        for thread in self.threads:
            thread.start()

    def wait(self) -> None:
        for thread in self.threads:
            thread.join(15)
            assert not thread.is_alive()


def timeless(outcome: Outcome) -> Outcome:
    """Without the time of its report, which each host tells by its own clock."""
    return replace(outcome, report=outcome.report and replace(outcome.report, when=0.0))


def test_normal_end_is_the_same_on_both_hosts_and_within_a_second() -> None:
    with meeting() as (leader, events):
        job = Job(leader, events, Host(LEADER, events), lambda own: Host("localhost", own, code=None), everywhere=False)
        job.wait()
    assert job.outcomes == {"leader": Outcome(0), "worker": Outcome(0)}
    assert job.lead.finished == job.worker.finished == [Outcome(0)]
    assert abs(job.ended["leader"] - job.ended["worker"]) < 1


def test_workers_report_reaches_every_host() -> None:
    report = FailureReport("ValueError: boom", 3, "localhost", 1, ("a", "b"), 5.0)
    with meeting() as (leader, events):
        lead = Host(LEADER, events, code=1, reports=(FailureReport("gone", 1, LEADER, 0, (), 4.0, echo=True),))
        job = Job(leader, events, lead, lambda own: Host("localhost", own, None, (report,)), everywhere=False)
        job.wait()
    assert {name: timeless(outcome) for name, outcome in job.outcomes.items()} == {
        "leader": timeless(Outcome(3, report)),
        "worker": timeless(Outcome(3, report)),
    }


def test_program_everywhere_ends_when_all_have_ended() -> None:
    with meeting() as (leader, events):
        lead = Host(LEADER, events)
        job = Job(leader, events, lead, lambda own: Host("localhost", own, code=None), everywhere=True)
        time.sleep(0.5)
        assert not job.outcomes
        job.worker_events.put(Exited(0))
        job.wait()
    assert set(job.outcomes.values()) == {Outcome(0)}


def test_program_everywhere_one_failure_ends_all() -> None:
    report = FailureReport("KeyError: 'x'", 1, "localhost", 0)
    with meeting() as (leader, events):
        lead = Host(LEADER, events, code=None)
        job = Job(leader, events, lead, lambda own: Host("localhost", own, 1, (report,)), everywhere=True)
        job.wait()
    assert {timeless(outcome) for outcome in job.outcomes.values()} == {timeless(Outcome(1, report))}
    assert lead.stopped


def test_preparation_that_fails_on_a_worker_ends_the_job() -> None:
    def follow(own: Events) -> Host:
        host = Host("localhost", own, code=None)
        host.error = "requirements.txt could not be installed."
        return host

    with meeting() as (leader, events):
        job = Job(leader, events, Host(LEADER, events), follow, everywhere=False)
        job.wait()
    for outcome in job.outcomes.values():
        assert outcome.report is not None
        assert (outcome.code, outcome.report.sentence) == (1, "requirements.txt could not be installed.")


def test_worker_is_lost() -> None:
    with meeting() as (leader, events):
        job = Job(
            leader, events, Host(LEADER, events, code=None), lambda own: Host("localhost", own, None), everywhere=False
        )
        time.sleep(0.5)
        job.connection.close()
        job.threads[0].join(10)
    outcome = job.outcomes["leader"]
    assert outcome.report is not None
    assert outcome.report.sentence.startswith("host localhost was lost while the job ran")
    assert job.lead.stopped


def test_leader_dies() -> None:
    with meeting() as (leader, events):
        job = Job(
            leader, events, Host(LEADER, events, code=None), lambda own: Host("localhost", own, None), everywhere=False
        )
        time.sleep(0.5)
        for connection in leader.connections.values():
            connection.close()
        job.threads[1].join(10)
    outcome = job.outcomes["worker"]
    assert outcome.report is not None
    assert outcome.report.sentence.startswith("the leader 127.0.0.1 was lost while the job ran")


def test_signal_reaches_the_programs_and_gives_their_code() -> None:
    with meeting(()) as (leader, events):
        lead = Host(LEADER, events, code=None)
        threading.Timer(0.3, lambda: events.put(Signalled(15))).start()
        outcome = LeaderLoop(leader, lead, events, everywhere=False).run(1)
    assert lead.signals == [15]
    assert outcome.code == 143


def test_signal_that_finds_no_program_yet_is_sent_again_until_one_is_there() -> None:
    with meeting(()) as (leader, events):
        lead = Host(LEADER, events, code=None, programs_after=2)
        threading.Timer(0.3, lambda: events.put(Signalled(15))).start()
        outcome = LeaderLoop(leader, lead, events, everywhere=False).run(1)
    assert lead.signals == [15, 15, 15]
    assert outcome.code == 143


def test_a_workers_signal_is_sent_again_too() -> None:
    with meeting() as (leader, events):
        lead = Host(LEADER, events, code=None)
        job = Job(leader, events, lead, lambda own: Host("localhost", own, None, programs_after=2), everywhere=True)
        time.sleep(0.5)
        job.worker_events.put(Signalled(15))
        job.wait()
    assert job.worker.signals == [15, 15, 15]
    assert {outcome.code for outcome in job.outcomes.values()} == {143}


def test_reports_of_many_ranks_fit_the_wire() -> None:
    detail = tuple("🙂" * failure.LINE_CHARACTERS for _ in range(failure.DETAIL_LINES))
    sentence = "🙂" * failure.SENTENCE_CHARACTERS
    reports = tuple(FailureReport(sentence, 3, "localhost", rank, detail, 5.0 + rank) for rank in range(32))
    with meeting() as (leader, events):
        lead = Host(LEADER, events, code=None)
        job = Job(leader, events, lead, lambda own: Host("localhost", own, 3, reports), everywhere=True)
        job.wait()
    assert {timeless(outcome) for outcome in job.outcomes.values()} == {timeless(Outcome(3, reports[0]))}


def test_host_alone_needs_nobody() -> None:
    with meeting(()) as (leader, events):
        lead = Host(LEADER, events, code=7)
        outcome = LeaderLoop(leader, lead, events, everywhere=True).run(1)
    assert outcome.report is not None
    assert (outcome.code, outcome.report.sentence[:35]) == (7, "mpirun ended with exit code 7 befor")


def test_missing_host_is_named_at_the_deadline_and_those_who_came_hear_it() -> None:
    with meeting(("localhost", "algo-3")) as (leader, events):
        lead = Host(LEADER, events)
        own: Events = SimpleQueue()
        follow = Host("localhost", own, None)
        worker: dict[str, Outcome] = {}

        def run_worker() -> None:
            connection = join(LEADER, Introduction("localhost", 1), own, 5, leader.port)
            worker["outcome"] = WorkerLoop(connection, follow, own).run()

        thread = threading.Thread(target=run_worker, daemon=True)
        thread.start()
        begin = time.monotonic()
        outcome = LeaderLoop(leader, lead, events, everywhere=False).run(1)
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
            target=WorkerLoop(connection, Host("localhost", own, None, programs_after=9), own).run, daemon=True
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
        heard.append(WorkerLoop(connection, Host("localhost", own), own).run())

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


HELLO = {"kind": "hello", "host": "localhost", "ranks": 1, "host_key": "k", "ssh_port": 0, "version": "1"}
REFUSED = {
    "a stranger": ({**HELLO, "host": "algo-9"}, here, "'algo-9' is not a host of this job"),
    "from another address": (HELLO, lambda host: {"10.9.8.7"}, "localhost resolves to 10.9.8.7 here, not to 127.0.0.1"),
    "a name without address": (HELLO, lambda host: set(), "localhost resolves to nothing here, not to 127.0.0.1"),
}


@pytest.mark.parametrize(("hello", "resolve", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(hello: dict[str, Any], resolve: Callable[[str], set[str]], reason: str) -> None:
    leader = Leader(LEADER, WORKERS, SimpleQueue(), port=0, resolve=resolve)
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


def test_silence_is_noticed() -> None:
    with meeting(silence=1.0) as (leader, events), socket.create_connection((LEADER, leader.port), timeout=5) as sock:
        sock.sendall(json.dumps(HELLO).encode() + b'\n{"kind": "beat"}\n')
        begin = time.monotonic()
        assert events.get(timeout=5) == Message("localhost", "joined", {})
        event = events.get(timeout=5)
        assert event == Lost("localhost", "no sign of life for 1 s")
        assert 0.8 < time.monotonic() - begin < 3


@pytest.mark.slow
def test_beats_keep_a_silent_host_alive() -> None:
    with meeting(silence=2.0) as (leader, events):
        connection = join(LEADER, Introduction("localhost", 1), SimpleQueue(), 5, leader.port)
        time.sleep(2.5)
        connection.send("ready")
        assert events.get(timeout=1) == Message("localhost", "joined", {})
        assert events.get(timeout=1) == Message("localhost", "ready", {})
