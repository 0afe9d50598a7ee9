"""The job from the first host that joins to the last that leaves: one loop for the leader, one for a worker.

A host alone is a leader without workers. Both loops only read events and decide; what they decide on is in rendezvous,
launch and failure. Whatever happens, the leader settles one Outcome, finishes its own files, and tells it to all; a
worker leaves after the leader's word (in SageMaker's local mode the first container that exits ends all others) or when
the leader is lost.
"""

import time
from collections.abc import Mapping
from queue import Empty
from typing import Any, Protocol

from berth.contract.errors import JobError
from berth.contract.host_names import by_number, listed
from berth.runtime.codes import exit_code
from berth.train.failures import failure
from berth.train.failures.failure import FailureReport
from berth.train.hosts.events import (
    Event,
    Events,
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
from berth.train.hosts.stops import Programs, Stop
from berth.train.hosts.wire import HostConnection

_COLLECT_SECONDS = 5.0


class HostActions(Protocol):
    """What a loop does on its own host. `start` launches (after `prepare` was reported), `stop` ends what runs."""

    @property
    def name(self) -> str:
        """The host's name in the job."""

    def prepare(self) -> None:
        """Begin to bring the program and its packages here; HostPrepared comes when it is done or has failed."""

    def start(self) -> None:
        """Launch what the plan starts on this host; Exited comes when it has ended."""

    def stop(self) -> None:
        """End everything that runs here, within seconds; may be called again."""

    def signal(self, number: int, count: int) -> None:
        """Have each of this host's programs get a signal that has had fewer than `count` of them."""

    def reports(self) -> list[FailureReport]:
        """What failed on this host so far."""

    def launcher_output(self) -> list[str]:
        """The launcher's last lines, for the case that it failed before any rank."""

    def leaves_model(self) -> bool:
        """Whether there is a file in this host's model folder."""

    def finish(self, outcome: Outcome) -> None:
        """Write what is left of the job here, as the last thing."""


class LeaderActions(HostActions, Protocol):
    """What only the leader's host does."""

    def admit(self, leader: Leader) -> Mapping[str, Any]:
        """Check the workers that have come; the fields of their welcome. JobError if they can't train together."""


class WorkerActions(HostActions, Protocol):
    """What only a worker's host does."""

    def accept(self, welcome: Mapping[str, Any]) -> None:
        """Take what the leader's welcome says: its key, the job's port."""


class LeaderLoop:
    """Runs a job on the leader. `everywhere`: each host runs the program itself; the job ends when all have."""

    def __init__(self, leader: Leader, host: LeaderActions, events: Events, *, everywhere: bool) -> None:
        self.leader = leader
        self.host = host
        self.events = events
        self.programs = Programs(host.signal, events)
        self.everywhere = everywhere
        self.waiting_ready = set(leader.workers)
        self.done: dict[str, int] = {}
        self.reports: list[FailureReport] = []
        self.lost: dict[str, str] = {}
        self.gone: set[str] = set()
        self.prepared = False
        self.own_code: int | None = None
        self.overdue = False
        self.models = False

    def run(self, timeout: float) -> Outcome:
        """Meet (the workers have `timeout` seconds), run, settle, tell everybody. Never raises for a job's failure."""
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
        self.host.stop()
        self.host.finish(outcome)
        self.leader.dismiss(outcome_fields(outcome, time.time()), deadline)
        return outcome

    def _loop(self) -> Outcome:
        started = False
        while not self._over(started=started):
            event = self.programs.next_event()
            self._note(event)
            if stop := self._stop_of(event):
                if not started:
                    raise Stopped(stop.number)
                if self.programs.tell(stop):
                    self.leader.broadcast("stop", number=stop.number, count=stop.count)
            if self.prepared and not self.waiting_ready and not started and not self._bad():
                started = True
                self.host.start()
        self.host.stop()
        self.leader.broadcast("ended")
        self._collect()
        return self._settle()

    def _stop_of(self, event: Event) -> Stop | None:
        """What an event says of a signal to this host or to a worker."""
        match event:
            case Signalled(number=number):
                return self.programs.heard(number)
            case Message(kind="stop", fields=fields):
                return Stop(**fields, when=time.time())
            case _:
                return None

    def _note(self, event: Event) -> None:
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
                self.gone.add(host)
                # A host that has done its part may leave; that it broke off says nothing about the job.
                if host not in self.done:
                    self.lost[host] = reason
                    get_logger().info("rendezvous: lost %s: %s", host, reason)
            case Message(host=host, kind="ready"):
                self.waiting_ready.discard(host)
            case Message(host=host, kind="done", fields=fields):
                part = read_outcome(fields, time.time())
                self.done[host] = part.code
                self.models = self.models or part.leaves_model
                if part.report is not None:
                    self.reports.append(part.report)
            case _:
                pass

    def _bad(self) -> bool:
        return bool(self.lost) or any(self.done.values())

    def _over(self, *, started: bool) -> bool:
        # In a job that is stopped each program has its time, also where another one has ended, or has gone.
        stopping = self.programs.told is not None
        if self.overdue or self.programs.overdue or (not stopping and (self._bad() or (self.own_code or 0) != 0)):
            return True
        if not started or self.own_code is None:
            return False
        return not self.everywhere or set(self.done) | (self.gone if stopping else set()) >= set(self.leader.workers)

    def _collect(self) -> None:
        """Wait until every worker that is still there has said how its part ended."""
        deadline = time.monotonic() + _COLLECT_SECONDS
        while missing := set(self.leader.connections) - set(self.done) - self.gone:
            try:
                event = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                get_logger().info("rendezvous: no done from %s in %.0f s", listed(missing), _COLLECT_SECONDS)
                self.lost |= dict.fromkeys(
                    sorted(missing, key=by_number), f"it did not answer for {_COLLECT_SECONDS:.0f} s"
                )
                return
            if isinstance(event, Lost) or (isinstance(event, Message) and event.kind == "done"):
                self._note(event)

    def _settle(self) -> Outcome:
        if self.own_code == 0 and not any(self.done.values()) and (not self.everywhere or not self.lost):
            if self.programs.told is not None:
                get_logger().info("the program has ended with exit code 0 after the stop, and so does the job")
            return Outcome(0, leaves_model=self.models or self.host.leaves_model())
        found = self.programs.cause(self.host.reports() + self.reports)
        code = self.own_code or next((code for code in self.done.values() if code), 0)
        if outcome := self.programs.stopped(found, code):
            return outcome
        if self.lost and (found is None or found.echo):
            host, reason = next(iter(self.lost.items()))
            return failed(
                f"host {host} was lost while the job ran ({reason}); look at that host's own log, it may have run out "
                "of memory "
                "or been taken away.",
                host,
            )
        if found is not None:
            return Outcome(found.code or 1, failure.with_lone_echo_explained(found))
        return failed(failure.launcher_sentence(code, self.host.launcher_output()), self.host.name, code or 1)


class WorkerLoop:
    """Runs a job on a worker, once it has joined."""

    def __init__(self, connection: HostConnection, host: WorkerActions, events: Events) -> None:
        self.connection = connection
        self.host = host
        self.events = events
        self.sent_done = False
        self.ready = False
        self.programs = Programs(host.signal, events)

    def run(self) -> Outcome:
        """Wait for the leader's welcome, take part, and end with the leader's outcome."""
        outcome = self._loop()
        self.host.stop()
        self.host.finish(outcome)
        self.connection.send("bye")
        self.connection.close()
        return outcome

    def _loop(self) -> Outcome:
        while True:
            # No time limit: a leader that is alive beats, and one that isn't is Lost.
            event = self.programs.next_event()
            match event:
                case Message(kind="outcome", fields=fields):
                    return read_outcome(fields, time.time())
                case Lost(host=host, reason=reason):
                    sentence = f"the leader {host} was lost while the job ran ({reason}); look at that host's own log."
                    return failed(sentence, self.host.name)
                case Message(kind="ended"):
                    self.host.stop()
                    self._send_done(self._part(0))
                case Exited(code=code):
                    self._send_done(self._part(exit_code(code)))
                case LauncherOverdue():
                    _log_overdue(event)
                    self._send_done(self._part(1))
                case Signalled(number=number):
                    self._signalled(self.programs.heard(number))
                case Message(kind="stop", fields=fields):
                    self.programs.tell(Stop(**fields, when=time.time()))
                case _:
                    self._begin(event)

    def _begin(self, event: Event) -> None:
        """The steps up to ready; a mistake is this host's end, and so the job's."""
        try:
            if isinstance(event, Message) and event.kind == "welcome":
                self.host.accept(event.fields)
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
        """How this host's part of the job ended; `code` is that of what it launched itself."""
        report = self.programs.cause(self.host.reports())
        if (code or report) and (outcome := self.programs.stopped(report, code)):
            report = outcome.report
        return Outcome(code, report, self.host.leaves_model())

    def _signalled(self, stop: Stop) -> None:
        """One host's signal is enough: the leader tells all others."""
        if not self.ready:
            self._send_done(stopped(stop.number))
        elif self.programs.tell(stop):
            self.connection.send("stop", number=stop.number, count=stop.count)

    def _send_done(self, outcome: Outcome) -> None:
        if not self.sent_done:
            self.sent_done = True
            self.connection.send("done", **outcome_fields(outcome, time.time()))


def _log_overdue(overdue: LauncherOverdue) -> None:
    get_logger().info("launcher: %s %.0f s ago and mpirun still runs; ending the job", overdue.what, overdue.seconds)
