"""The event loops of a job, from the first host that joins to the last that leaves: one for the leader, one for a
worker.

A single host is a leader without workers. The loops only read events and decide; launching/host.py carries the
decisions out. In every case the leader decides on one Outcome, writes its own files, and sends the outcome to all
workers. A worker exits only after it got the outcome, or if the leader is lost: in SageMaker's local mode the first
container that exits ends all others.
"""

import time
from queue import Empty

from berth.contract.errors import JobError
from berth.contract.host_names import by_number, listed
from berth.runtime.codes import exit_code
from berth.train.failures import failure
from berth.train.failures.failure import FailureReport
from berth.train.hosts.events import (
    Event,
    Exited,
    HostPrepared,
    LauncherOverdue,
    Lost,
    Message,
    Signalled,
)
from berth.train.hosts.log import get_logger
from berth.train.hosts.outcome import Outcome, failed, outcome_fields, read_outcome, stopped
from berth.train.hosts.rendezvous import Leader, Stopped
from berth.train.hosts.stops import SignalForwarder, Stop
from berth.train.hosts.wire import HostConnection
from berth.train.launching.host import Host
from berth.train.launching.refusal import report_refusal

_COLLECT_SECONDS = 5.0


def lead(host: Host) -> Outcome:
    """Run the job on its leader. JobError if this host can't listen for the workers."""
    try:
        leader = host.context.listen()
        return LeaderLoop(leader, host, everywhere=host.plan.kind == "process").run(host.context.timeout)
    finally:
        host.close()


def follow(host: Host) -> Outcome:
    """Run a worker's part of the job. JobError or Stopped if it could not join the leader."""
    try:
        try:
            introduction = host.introduction()
        except JobError as error:
            return report_refusal(host.context, failed(str(error), host.name))
        return WorkerLoop(host.context.join(introduction), host).run()
    finally:
        host.close()


class LeaderLoop:
    """Runs a job on the leader. `everywhere`: each host runs the program itself, so the job ends when all hosts end."""

    def __init__(self, leader: Leader, host: Host, *, everywhere: bool) -> None:
        self.leader = leader
        self.host = host
        self.forwarder = SignalForwarder(host.local_run.signal_programs, host.events)
        self.everywhere = everywhere
        self.not_ready = set(leader.workers)
        self.done: dict[str, int] = {}  # worker → exit code of its part
        self.reports: list[FailureReport] = []
        self.lost: dict[str, str] = {}  # worker that failed to send its `done` → reason
        self.disconnected: set[str] = set()  # all workers whose connection has ended
        self.prepared = False
        self.own_code: int | None = None
        self.overdue = False
        self.leaves_model = False

    def run(self, timeout: float) -> Outcome:
        """Run the job; returns its outcome, also if it fails. `timeout`: seconds that the workers have to join."""
        deadline = time.monotonic() + timeout
        try:
            self.leader.gather(timeout)
            self.leader.broadcast("welcome", **self.host.admit(self.leader))
            self.host.prepare()
            outcome = self._loop()
        except JobError as error:
            outcome = failed(str(error), self.host.name)
        except Stopped as error:
            outcome = stopped(error.number)
            deadline = time.monotonic()
        self.host.local_run.stop()
        self.host.finish(outcome)
        self.leader.dismiss(outcome_fields(outcome, time.time()), deadline)
        return outcome

    def _loop(self) -> Outcome:
        started = False
        while not self._is_over(started=started):
            event = self.forwarder.next_event()
            self._record(event)
            if stop := self._stop_in(event):
                if not started:
                    raise Stopped(stop.number)
                if self.forwarder.forward(stop):
                    self.leader.broadcast("stop", number=stop.number, count=stop.count)
            if self.prepared and not self.not_ready and not started and not self._has_failed():
                started = True
                self.host.start()
        self.host.local_run.stop()
        self.leader.broadcast("ended")
        self._collect()
        return self._settle()

    def _stop_in(self, event: Event) -> Stop | None:
        """The signal that an event reports, to this host or to a worker; None if it reports none."""
        match event:
            case Signalled(number=number):
                return self.forwarder.count_signal(number)
            case Message(kind="stop", fields=fields):
                return Stop(**fields, when=time.time())
            case _:
                return None

    def _record(self, event: Event) -> None:
        match event:
            case HostPrepared(error=None):
                self.prepared = True
            case HostPrepared(error=error):
                raise JobError(str(error))
            case Exited(code=code):
                self.own_code = exit_code(code)
            case LauncherOverdue():
                _log_overdue(event)
                self.overdue = True
            case Lost(host=host, reason=reason):
                self.disconnected.add(host)
                # After `done` a host may leave, so its lost connection is not a failure of the job.
                if host not in self.done:
                    self.lost[host] = reason
                    get_logger().info("rendezvous: lost %s: %s", host, reason)
            case Message(host=host, kind="ready"):
                self.not_ready.discard(host)
            case Message(host=host, kind="done", fields=fields):
                part = read_outcome(fields, time.time())
                self.done[host] = part.code
                self.leaves_model = self.leaves_model or part.leaves_model
                if part.report is not None:
                    self.reports.append(part.report)
            case _:
                pass

    def _has_failed(self) -> bool:
        return bool(self.lost) or any(self.done.values())

    def _is_over(self, *, started: bool) -> bool:
        # In a stopped job every program keeps its full time, even if another one has failed or its host is lost.
        stopping = self.forwarder.active is not None
        if self.overdue or self.forwarder.overdue:
            return True
        if not stopping and (self._has_failed() or (self.own_code or 0) != 0):
            return True
        if not started or self.own_code is None:
            return False
        ended = set(self.done) | (self.disconnected if stopping else set())
        return not self.everywhere or ended >= set(self.leader.workers)

    def _collect(self) -> None:
        """Wait for `done` from every worker that is still connected."""
        deadline = time.monotonic() + _COLLECT_SECONDS
        while missing := set(self.leader.connections) - set(self.done) - self.disconnected:
            try:
                event = self.host.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                get_logger().info("rendezvous: no done from %s in %.0f s", listed(missing), _COLLECT_SECONDS)
                self.lost |= dict.fromkeys(
                    sorted(missing, key=by_number), f"it did not answer for {_COLLECT_SECONDS:.0f} s"
                )
                return
            if isinstance(event, Lost) or (isinstance(event, Message) and event.kind == "done"):
                self._record(event)

    def _settle(self) -> Outcome:
        if self.own_code == 0 and not any(self.done.values()) and (not self.everywhere or not self.lost):
            if self.forwarder.active is not None:
                get_logger().info("the program ended with exit code 0 after the stop signal, so the job succeeds")
            return Outcome(0, leaves_model=self.leaves_model or self.host.leaves_model())
        cause = self.forwarder.find_cause(self.host.local_run.reports() + self.reports)
        code = self.own_code or next((code for code in self.done.values() if code), 0)
        if outcome := self.forwarder.stopped_outcome(cause, code):
            return outcome
        if self.lost and (cause is None or cause.echo):
            host, reason = next(iter(self.lost.items()))
            return failed(
                f"host {host} was lost while the job ran ({reason}); look at that host's own log: it may have run out "
                "of memory or been terminated.",
                host,
            )
        if cause is not None:
            return Outcome(cause.code or 1, failure.with_lone_echo_explained(cause))
        return failed(failure.launcher_sentence(code, self.host.local_run.output), self.host.name, code or 1)


class WorkerLoop:
    """Runs a job on a worker, once it has joined."""

    def __init__(self, connection: HostConnection, host: Host) -> None:
        self.connection = connection
        self.host = host
        self.sent_done = False
        self.ready = False
        self.forwarder = SignalForwarder(host.local_run.signal_programs, host.events)

    def run(self) -> Outcome:
        """Wait for the leader's `welcome`, run this host's part, and end with the leader's outcome."""
        outcome = self._loop()
        self.host.local_run.stop()
        self.host.finish(outcome)
        self.connection.send("bye")
        self.connection.close()
        return outcome

    def _loop(self) -> Outcome:
        while True:
            # No time limit: a leader that sends no beats is reported as Lost.
            event = self.forwarder.next_event()
            match event:
                case Message(kind="outcome", fields=fields):
                    return read_outcome(fields, time.time())
                case Lost(host=host, reason=reason):
                    sentence = f"the leader {host} was lost while the job ran ({reason}); look at that host's own log."
                    return failed(sentence, self.host.name)
                case Message(kind="ended"):
                    self.host.local_run.stop()
                    self._send_done(self._part(0))
                case Exited(code=code):
                    self._send_done(self._part(exit_code(code)))
                case LauncherOverdue():
                    _log_overdue(event)
                    self._send_done(self._part(1))
                case Signalled(number=number):
                    self._handle_signal(self.forwarder.count_signal(number))
                case Message(kind="stop", fields=fields):
                    self.forwarder.forward(Stop(**fields, when=time.time()))
                case _:
                    self._advance(event)

    def _advance(self, event: Event) -> None:
        """The steps up to `ready`. A failure here ends this host's part, and so the job."""
        try:
            if isinstance(event, Message) and event.kind == "welcome":
                self.host.accept(event.fields, self.connection.address)
                self.host.prepare()
            elif isinstance(event, HostPrepared):
                if event.error is not None:
                    raise JobError(event.error)
                self.ready = True
                self.host.start()
                self.connection.send("ready")
        except JobError as error:
            self._send_done(failed(str(error), self.host.name))

    def _part(self, code: int) -> Outcome:
        """The outcome of this host's part of the job. `code`: exit code of the command that this host started."""
        report = self.forwarder.find_cause(self.host.local_run.reports())
        if (code or report) and (outcome := self.forwarder.stopped_outcome(report, code)):
            report = outcome.report
        return Outcome(code, report, self.host.leaves_model())

    def _handle_signal(self, stop: Stop) -> None:
        """Handle a signal to this host: the leader forwards it to all others."""
        if not self.ready:
            self._send_done(stopped(stop.number))
        elif self.forwarder.forward(stop):
            self.connection.send("stop", number=stop.number, count=stop.count)

    def _send_done(self, outcome: Outcome) -> None:
        if not self.sent_done:
            self.sent_done = True
            self.connection.send("done", **outcome_fields(outcome, time.time()))


def _log_overdue(overdue: LauncherOverdue) -> None:
    get_logger().info("launcher: %s %.0f s ago and mpirun still runs; ending the job", overdue.what, overdue.seconds)
