"""The loops of a leader and a worker that meet over real sockets, from the first host to the last."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from queue import SimpleQueue
from typing import Any

import pytest

from berth.runtime.failure_file import SENTENCE_CHARACTERS
from berth.train.failures import failure
from berth.train.failures.failure import FailureReport
from berth.train.hosts import stops
from berth.train.hosts.events import Exited, LauncherOverdue, Signalled
from berth.train.hosts.messages import WireError
from berth.train.hosts.outcome import Outcome, outcome_fields
from berth.train.hosts.rendezvous import Introduction, Leader, join
from berth.train.hosts.wire import LineSocket
from berth.train.launching.session import LeaderLoop, WorkerLoop
from tests.unit.train.hosts.hosts_here import LEADER, WORKER, FakeHost, joined, meeting, timeless

RUNS: Mapping[str, Any] = {"code": None}
"""A program that runs until it is signalled."""
IGNORES_SIGNALS: Mapping[str, Any] = {"code": None, "ends_after": 99}
BOOM = FailureReport("ValueError: boom", 3, WORKER, 1)


class Job:
    """A leader and a worker, each in its own thread."""

    def __init__(self, leader: Leader, lead: FakeHost, follow: FakeHost, everywhere: bool) -> None:
        self.leader, self.lead, self.follow = leader, lead, follow
        self.outcomes: dict[str, Outcome] = {}
        self.ended: dict[str, float] = {}

        def run_leader() -> None:
            self.outcomes["leader"] = LeaderLoop(leader, lead, everywhere=everywhere).run(5)
            self.ended["leader"] = time.monotonic()

        def run_worker() -> None:
            self.connection = join(LEADER, Introduction(WORKER, 1), follow.events, 5, leader.port)
            self.outcomes["worker"] = WorkerLoop(self.connection, follow).run()
            self.ended["worker"] = time.monotonic()

        self.threads = [threading.Thread(target=run, daemon=True) for run in (run_leader, run_worker)]
        for thread in self.threads:
            thread.start()

    def wait_until_started(self) -> None:
        """Wait until both hosts have started their programs."""
        for host in (self.lead, self.follow):
            assert host.started.wait(30)
        assert not self.outcomes

    def outcome(self) -> Outcome:
        """Wait for the end; returns the outcome, which must be the same on both hosts."""
        for thread in self.threads:
            thread.join(30)
            assert not thread.is_alive()
        (outcome,) = {timeless(outcome) for outcome in self.outcomes.values()}
        return outcome

    def sentence(self) -> str:
        """The failure that both hosts report at the end."""
        report = self.outcome().report
        return report.sentence


@contextlib.contextmanager
def running(lead: Mapping[str, Any] = {}, follow: Mapping[str, Any] = {}, *, everywhere: bool = False) -> Iterator[Job]:
    """A job. `lead`, `follow`: arguments of the FakeHost that leads and of the worker."""
    with meeting() as (leader, events):
        yield Job(leader, FakeHost(LEADER, events, **lead), FakeHost(WORKER, SimpleQueue(), **follow), everywhere)


def test_success_ends_both_hosts_within_a_second() -> None:
    with running({}, RUNS) as job:
        assert job.outcome() == Outcome(0)
    assert job.lead.finished == job.follow.finished == [Outcome(0)]
    assert abs(job.ended["leader"] - job.ended["worker"]) < 1


def test_workers_report_reaches_every_host() -> None:
    report = FailureReport("ValueError: boom", 3, WORKER, 1, ("a", "b"), 5.0)
    echo = FailureReport("gone", 1, LEADER, 0, (), 4.0, echo=True)
    with running({"code": 1, "reports": (echo,)}, {**RUNS, "reports": (report,)}) as job:
        assert job.outcome() == timeless(Outcome(3, report))


@pytest.mark.parametrize("failed", [LEADER, WORKER], ids=["leader", "worker"])
def test_overdue_launcher_ends_the_job(failed: str) -> None:
    host = {**RUNS, "reports": (BOOM,)}
    with running(host if failed == LEADER else RUNS, host if failed == WORKER else RUNS) as job:
        job.wait_until_started()
        (job.lead if failed == LEADER else job.follow).events.put(LauncherOverdue("a rank failed", 10))
        assert job.outcome() == timeless(Outcome(3, BOOM))
    assert job.lead.stopped


def test_job_without_mpirun_ends_when_all_hosts_have_ended() -> None:
    with running({}, RUNS, everywhere=True) as job:
        job.wait_until_started()
        job.follow.events.put(Exited(0))
        assert job.outcome() == Outcome(0)


def test_job_without_mpirun_ends_when_one_host_fails() -> None:
    with running(RUNS, {"code": 3, "reports": (BOOM,)}, everywhere=True) as job:
        assert job.outcome() == timeless(Outcome(3, BOOM))
    assert job.lead.stopped


def test_failed_preparation_of_the_worker_ends_the_job() -> None:
    with running({}, {**RUNS, "error": "requirements.txt could not be installed."}) as job:
        assert job.sentence() == "requirements.txt could not be installed."


@pytest.mark.parametrize(
    ("lost", "begin"),
    [
        (WORKER, "host localhost was lost while the job ran"),
        (LEADER, "the leader 127.0.0.1 was lost while the job ran"),
    ],
    ids=["worker", "leader"],
)
def test_lost_host_is_reported(lost: str, begin: str) -> None:
    with running(RUNS, RUNS) as job:
        job.wait_until_started()
        connection = job.connection if lost == WORKER else job.leader.connections[WORKER]
        connection.close()
        job.threads[0 if lost == WORKER else 1].join(30)
    report = job.outcomes["leader" if lost == WORKER else "worker"].report
    assert report.sentence.startswith(begin)
    assert (job.lead if lost == WORKER else job.follow).stopped


@pytest.mark.slow
@pytest.mark.parametrize("signalled", [LEADER, WORKER], ids=["leader", "worker"])
def test_signal_is_resent_until_a_program_gets_it(signalled: str) -> None:
    """A program may start a little after the signal came."""
    late = {**RUNS, "programs_after": 2}
    with running(late if signalled == LEADER else RUNS, late if signalled == WORKER else RUNS, everywhere=True) as job:
        job.wait_until_started()
        host = job.lead if signalled == LEADER else job.follow
        host.events.put(Signalled(15))
        assert job.outcome().code == 143
    assert host.signals == [15, 15, 15]


def test_program_that_ignores_a_stop_is_killed_after_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stops, "STOP_SECONDS", 0.5)
    with running(IGNORES_SIGNALS, RUNS, everywhere=True) as job:
        job.wait_until_started()
        job.follow.events.put(Signalled(15))
        assert job.sentence().startswith("the job was stopped by a signal (SIGTERM) before it was done, and was")
    assert job.lead.stopped
    assert job.outcome().code == 143


def test_second_signal_shortens_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stops, "AT_ONCE_SECONDS", 0.5)
    with running(IGNORES_SIGNALS, IGNORES_SIGNALS, everywhere=True) as job:
        job.wait_until_started()
        for _ in range(2):
            job.follow.events.put(Signalled(15))
        assert job.sentence() == "the job was stopped by a signal (SIGTERM) before it was done."
    assert job.lead.signals == job.follow.signals == [15, 15]
    assert job.lead.stopped
    assert job.follow.stopped


def test_worker_lost_during_a_stop_does_not_end_the_leaders_program() -> None:
    """Each program keeps its full time to save, although a worker may be faster and its host already gone."""
    with running(IGNORES_SIGNALS, IGNORES_SIGNALS, everywhere=True) as job:
        job.wait_until_started()
        job.lead.events.put(Signalled(15))
        assert job.follow.signalled.wait(30)
        job.connection.close()
        time.sleep(0.5)
        assert not job.lead.stopped
        job.lead.events.put(Exited(5))
        job.threads[0].join(30)
    assert (job.outcomes["leader"].code, job.follow.signals) == (5, [15])


def test_reports_of_many_ranks_fit_into_a_message() -> None:
    detail = tuple("🙂" * failure.LINE_CHARACTERS for _ in range(failure.DETAIL_LINES))
    sentence = "🙂" * SENTENCE_CHARACTERS
    reports = tuple(FailureReport(sentence, 3, WORKER, rank, detail, 5.0 + rank) for rank in range(32))
    with running(RUNS, {"code": 3, "reports": reports}, everywhere=True) as job:
        assert job.outcome() == timeless(Outcome(3, reports[0]))


def test_single_host_runs_without_workers() -> None:
    with meeting(()) as (leader, events):
        outcome = LeaderLoop(leader, FakeHost(LEADER, events, code=7), everywhere=True).run(1)
    assert (outcome.code, outcome.report.sentence[:35]) == (7, "mpirun ended with exit code 7 befor")


def report_failure(sock: socket.socket, report: FailureReport, clock: float) -> None:
    """Speak for a worker whose rank failed with `report`, and whose clock shows `clock` now."""
    lines = LineSocket(sock, 5)
    lines.send("ready")
    lines.send("done", **outcome_fields(Outcome(3, report), clock))
    with contextlib.suppress(WireError):
        while lines.receive()[0] != "outcome":
            pass
        lines.send("bye")


@pytest.mark.parametrize("skew", [-300.0, 300.0])
@pytest.mark.parametrize(("ago", "cause"), [(9.0, WORKER), (1.0, LEADER)])
def test_first_failure_is_the_cause_despite_clock_skew(skew: float, ago: float, cause: str) -> None:
    """The leader's rank failed five seconds ago, the worker's nine or one; the worker's clock is five minutes off."""
    with joined() as (leader, events, sock):
        leaders = FailureReport("the leader's", 1, LEADER, 0, when=time.time() - 5)
        clock = time.time() + skew
        workers = FailureReport("the worker's", 3, WORKER, 1, when=clock - ago)
        thread = threading.Thread(target=report_failure, args=(sock, workers, clock))
        thread.start()
        outcome = LeaderLoop(leader, FakeHost(LEADER, events, None, (leaders,)), everywhere=False).run(5)
        thread.join(10)
    assert outcome.report.host == cause


@pytest.mark.parametrize(("leaders", "workers"), [(False, False), (False, True), (True, False)])
def test_all_hosts_know_whether_any_leaves_a_model(leaders: bool, workers: bool) -> None:
    with running({"model": leaders}, {"model": workers}, everywhere=True) as job:
        assert job.outcome() == Outcome(0, leaves_model=leaders or workers)
