"""The job's loops on a leader and a worker that meet over real sockets, from the first host to the last."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import pytest

from berth.runtime.failure_file import SENTENCE_CHARACTERS
from berth.train.failures import failure
from berth.train.failures.failure import FailureReport
from berth.train.hosts import stops
from berth.train.hosts.events import Events, Exited, LauncherOverdue, Signalled
from berth.train.hosts.messages import WireError
from berth.train.hosts.outcome import Outcome, outcome_fields
from berth.train.hosts.rendezvous import Introduction, Leader, join
from berth.train.hosts.wire import LineSocket
from berth.train.launching.session import LeaderLoop, WorkerLoop
from tests.unit.train.hosts.hosts_here import LEADER, WORKER, FakeHost, joined, meeting, timeless


class Job:
    """One leader and one worker, each in a thread of its own."""

    def __init__(
        self, leader: Leader, events: Events, lead: FakeHost, follow: Callable[[Events], FakeHost], everywhere: bool
    ) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.ended: dict[str, float] = {}
        self.worker_events: Events = SimpleQueue()
        self.worker = follow(self.worker_events)
        self.lead = lead

        def run_leader() -> None:
            self.outcomes["leader"] = LeaderLoop(leader, lead, everywhere=everywhere).run(5)
            self.ended["leader"] = time.monotonic()

        def run_worker() -> None:
            introduction = Introduction(host="localhost", ranks=1)
            self.connection = join(LEADER, introduction, self.worker_events, 5, leader.port)
            self.outcomes["worker"] = WorkerLoop(self.connection, self.worker).run()
            self.ended["worker"] = time.monotonic()

        self.threads = [threading.Thread(target=run, daemon=True) for run in (run_leader, run_worker)]
        for thread in self.threads:
            thread.start()

    def begun(self) -> None:
        """Both hosts have started their programs."""
        for host in (self.lead, self.worker):
            assert host.started.wait(30)

    def wait(self) -> None:
        for thread in self.threads:
            thread.join(30)
            assert not thread.is_alive()


def test_normal_end_is_the_same_on_both_hosts_and_within_a_second() -> None:
    with meeting() as (leader, events):
        job = Job(
            leader,
            events,
            FakeHost(LEADER, events),
            lambda own: FakeHost("localhost", own, code=None),
            everywhere=False,
        )
        job.wait()
    assert job.outcomes == {"leader": Outcome(0), "worker": Outcome(0)}
    assert job.lead.finished == job.worker.finished == [Outcome(0)]
    assert abs(job.ended["leader"] - job.ended["worker"]) < 1


def test_workers_report_reaches_every_host() -> None:
    report = FailureReport("ValueError: boom", 3, "localhost", 1, ("a", "b"), 5.0)
    with meeting() as (leader, events):
        lead = FakeHost(LEADER, events, code=1, reports=(FailureReport("gone", 1, LEADER, 0, (), 4.0, echo=True),))
        job = Job(leader, events, lead, lambda own: FakeHost("localhost", own, None, (report,)), everywhere=False)
        job.wait()
    assert {name: timeless(outcome) for name, outcome in job.outcomes.items()} == {
        "leader": timeless(Outcome(3, report)),
        "worker": timeless(Outcome(3, report)),
    }


def test_a_launcher_that_outlives_a_rank_that_failed_is_ended_wherever_that_was() -> None:
    report = FailureReport("ValueError: boom", 3, WORKER, 1)
    with meeting() as (leader, events):
        lead = FakeHost(LEADER, events, code=None)
        job = Job(leader, events, lead, lambda own: FakeHost(WORKER, own, None, (report,)), everywhere=False)
        job.begun()
        assert not job.outcomes
        job.worker_events.put(LauncherOverdue("a rank failed", 10))
        job.wait()
    assert {timeless(outcome) for outcome in job.outcomes.values()} == {timeless(Outcome(3, report))}
    assert lead.stopped
    with meeting() as (leader, events):
        lead = FakeHost(LEADER, events, None, (report,))
        job = Job(leader, events, lead, lambda own: FakeHost(WORKER, own, code=None), everywhere=False)
        job.begun()
        events.put(LauncherOverdue("a rank failed", 10))
        job.wait()
    assert {timeless(outcome) for outcome in job.outcomes.values()} == {timeless(Outcome(3, report))}


def test_program_everywhere_ends_when_all_have_ended() -> None:
    with meeting() as (leader, events):
        lead = FakeHost(LEADER, events)
        job = Job(leader, events, lead, lambda own: FakeHost("localhost", own, code=None), everywhere=True)
        job.begun()
        assert not job.outcomes
        job.worker_events.put(Exited(0))
        job.wait()
    assert set(job.outcomes.values()) == {Outcome(0)}


def test_program_everywhere_one_failure_ends_all() -> None:
    report = FailureReport("KeyError: 'x'", 1, "localhost", 0)
    with meeting() as (leader, events):
        lead = FakeHost(LEADER, events, code=None)
        job = Job(leader, events, lead, lambda own: FakeHost("localhost", own, 1, (report,)), everywhere=True)
        job.wait()
    assert {timeless(outcome) for outcome in job.outcomes.values()} == {timeless(Outcome(1, report))}
    assert lead.stopped


def test_preparation_that_fails_on_a_worker_ends_the_job() -> None:
    def follow(own: Events) -> FakeHost:
        host = FakeHost("localhost", own, code=None)
        host.error = "requirements.txt could not be installed."
        return host

    with meeting() as (leader, events):
        job = Job(leader, events, FakeHost(LEADER, events), follow, everywhere=False)
        job.wait()
    for outcome in job.outcomes.values():
        assert outcome.report is not None
        assert (outcome.code, outcome.report.sentence) == (1, "requirements.txt could not be installed.")


def test_worker_is_lost() -> None:
    with meeting() as (leader, events):
        job = Job(
            leader,
            events,
            FakeHost(LEADER, events, code=None),
            lambda own: FakeHost("localhost", own, None),
            everywhere=False,
        )
        job.begun()
        job.connection.close()
        job.threads[0].join(30)
    outcome = job.outcomes["leader"]
    assert outcome.report is not None
    assert outcome.report.sentence.startswith("host localhost was lost while the job ran")
    assert job.lead.stopped


def test_leader_dies() -> None:
    with meeting() as (leader, events):
        job = Job(
            leader,
            events,
            FakeHost(LEADER, events, code=None),
            lambda own: FakeHost("localhost", own, None),
            everywhere=False,
        )
        job.begun()
        for connection in leader.connections.values():
            connection.close()
        job.threads[1].join(30)
    outcome = job.outcomes["worker"]
    assert outcome.report is not None
    assert outcome.report.sentence.startswith("the leader 127.0.0.1 was lost while the job ran")


def test_signal_that_finds_no_program_yet_is_sent_again_until_one_is_there() -> None:
    with meeting(()) as (leader, events):
        lead = FakeHost(LEADER, events, code=None, programs_after=2)
        threading.Timer(0.3, lambda: events.put(Signalled(15))).start()
        outcome = LeaderLoop(leader, lead, everywhere=False).run(1)
    assert lead.signals == [15, 15, 15]
    assert outcome.code == 143


def test_a_program_that_never_ends_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stops, "STOP_SECONDS", 0.5)
    with meeting() as (leader, events):
        lead = FakeHost(LEADER, events, code=None, ends_after=99)
        job = Job(leader, events, lead, lambda own: FakeHost("localhost", own, None), everywhere=True)
        job.begun()
        job.worker_events.put(Signalled(15))
        job.wait()
    assert lead.stopped
    for outcome in job.outcomes.values():
        assert outcome.report is not None
        assert outcome.report.sentence.startswith(
            "the job was stopped by a signal (SIGTERM) before it was done, and was"
        )
        assert outcome.code == 143


def test_a_second_signal_gives_a_program_that_takes_no_notice_no_more_time() -> None:
    with meeting() as (leader, events):
        lead = FakeHost(LEADER, events, code=None, ends_after=99)
        job = Job(leader, events, lead, lambda own: FakeHost("localhost", own, None, ends_after=99), everywhere=True)
        job.begun()
        began = time.monotonic()
        for _ in range(2):
            job.worker_events.put(Signalled(15))
        job.wait()
    assert time.monotonic() - began < 10
    assert lead.signals == job.worker.signals == [15, 15]
    assert lead.stopped
    assert job.worker.stopped
    for outcome in job.outcomes.values():
        assert outcome.report is not None
        assert outcome.report.sentence == "the job was stopped by a signal (SIGTERM) before it was done."


def test_a_worker_that_is_lost_in_a_stop_does_not_end_the_others() -> None:
    """The leader's program takes a second to save, and the worker's host has gone meanwhile."""
    with meeting() as (leader, events):
        lead = FakeHost(LEADER, events, code=None, ends_after=99)
        job = Job(leader, events, lead, lambda own: FakeHost("localhost", own, None, ends_after=99), everywhere=True)
        job.begun()
        events.put(Signalled(15))
        assert job.worker.signalled.wait(30)
        job.connection.close()
        time.sleep(0.5)
        assert not lead.stopped
        events.put(Exited(5))
        job.threads[0].join(30)
    assert (job.outcomes["leader"].code, job.worker.signals) == (5, [15])


def test_a_workers_signal_is_sent_again_too() -> None:
    with meeting() as (leader, events):
        lead = FakeHost(LEADER, events, code=None)
        job = Job(leader, events, lead, lambda own: FakeHost("localhost", own, None, programs_after=2), everywhere=True)
        job.begun()
        job.worker_events.put(Signalled(15))
        job.wait()
    assert job.worker.signals == [15, 15, 15]
    assert {outcome.code for outcome in job.outcomes.values()} == {143}


def test_reports_of_many_ranks_fit_the_wire() -> None:
    detail = tuple("🙂" * failure.LINE_CHARACTERS for _ in range(failure.DETAIL_LINES))
    sentence = "🙂" * SENTENCE_CHARACTERS
    reports = tuple(FailureReport(sentence, 3, "localhost", rank, detail, 5.0 + rank) for rank in range(32))
    with meeting() as (leader, events):
        lead = FakeHost(LEADER, events, code=None)
        job = Job(leader, events, lead, lambda own: FakeHost("localhost", own, 3, reports), everywhere=True)
        job.wait()
    assert {timeless(outcome) for outcome in job.outcomes.values()} == {timeless(Outcome(3, reports[0]))}


def test_host_alone_needs_nobody() -> None:
    with meeting(()) as (leader, events):
        lead = FakeHost(LEADER, events, code=7)
        outcome = LeaderLoop(leader, lead, everywhere=True).run(1)
    assert outcome.report is not None
    assert (outcome.code, outcome.report.sentence[:35]) == (7, "mpirun ended with exit code 7 befor")


def follow(sock: socket.socket, report: FailureReport, clock: float) -> None:
    """A worker whose rank failed with `report`, by a clock that says `clock` now."""
    lines = LineSocket(sock, 5)
    lines.send("ready")
    lines.send("done", **outcome_fields(Outcome(3, report), clock))
    with contextlib.suppress(WireError):
        while lines.receive()[0] != "outcome":
            pass
        lines.send("bye")


@pytest.mark.parametrize("skew", [-300.0, 300.0])
@pytest.mark.parametrize(("ago", "blamed"), [(9.0, WORKER), (1.0, LEADER)])
def test_the_first_failure_is_the_cause_whatever_the_hosts_clocks_say(skew: float, ago: float, blamed: str) -> None:
    """The leader's rank failed five seconds ago, the worker's nine or one, by a clock that is five minutes off."""
    with joined() as (leader, events, sock):
        own = FailureReport("the leader's", 1, LEADER, 0, when=time.time() - 5)
        theirs = time.time() + skew
        thread = threading.Thread(
            target=follow, args=(sock, FailureReport("the worker's", 3, WORKER, 1, when=theirs - ago), theirs)
        )
        thread.start()
        outcome = LeaderLoop(leader, FakeHost(LEADER, events, None, (own,)), everywhere=False).run(5)
        thread.join(10)
    assert outcome.report is not None
    assert outcome.report.host == blamed


@pytest.mark.parametrize(("of_leader", "of_worker"), [(False, False), (False, True), (True, False)])
def test_whether_any_host_leaves_a_model_is_known_on_all(of_leader: bool, of_worker: bool) -> None:
    with meeting() as (leader, events):
        lead = FakeHost(LEADER, events)
        lead.model = of_leader

        def follow(own: Events) -> FakeHost:
            host = FakeHost("localhost", own)
            host.model = of_worker
            return host

        job = Job(leader, events, lead, follow, everywhere=True)
        job.wait()
    expected = Outcome(0, leaves_model=of_leader or of_worker)
    assert job.outcomes == {"leader": expected, "worker": expected}
