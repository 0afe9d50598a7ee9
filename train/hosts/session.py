"""The job from the first host that joins to the last that leaves: one loop for the leader, one for a worker.

A host alone is a leader without workers. Both loops only read events and decide; what they decide on is in rendezvous,
launch and failure. Whatever happens, the leader settles one Outcome, finishes its own files, and tells it to all; a
worker leaves after the leader's word (in SageMaker's local mode the first container that exits ends all others) or when
the leader is lost.
"""

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from queue import Empty
from typing import Any

from berth.contract.errors import JobError
from berth.train import failure
from berth.train.failure import FailureReport
from berth.train.hosts.events import Event, Events, Exited, HostPrepared, Lost, Message, Signalled
from berth.train.hosts.rendezvous import Leader, Stopped
from berth.train.hosts.wire import HostConnection
from berth.train.log import get_logger

_COLLECT_SECONDS = 5.0
_AGAIN_SECONDS = 0.2
_BYE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the job ended on every host (`report` is None only for code 0), or how one host's part of it did."""

    code: int
    report: FailureReport | None = None


@dataclass(frozen=True, slots=True)
class Local:
    """What a loop does on its own host. `start` launches (after `prepare` was reported), `stop` ends what runs."""

    host: str
    prepare: Callable[[], None]
    start: Callable[[], None]
    stop: Callable[[], None]
    signal: Callable[[int], int]
    reports: Callable[[], list[FailureReport]]
    launcher_said: Callable[[], list[str]]
    finish: Callable[[Outcome], None]


class SignalForwarder:
    """This host's programs as a signal finds them, which may come before they have started."""

    def __init__(self, local: Local, events: Events) -> None:
        self._local = local
        self._events = events
        self._pending = False

    def terminate(self) -> bool:
        """Ask the programs to stop; if there is none yet (False), `next_event` asks again until one is there."""
        self._pending = self._local.signal(signal.SIGTERM) == 0
        return not self._pending

    def next_event(self) -> Event:
        """Wait for the next event, without a time limit."""
        while self._pending:
            try:
                return self._events.get(timeout=_AGAIN_SECONDS)
            except Empty:
                self.terminate()
        return self._events.get()


def failed(sentence: str, host: str, code: int = 1) -> Outcome:
    """An outcome that no rank reported."""
    return Outcome(code, FailureReport(sentence=sentence, code=code, host=host, when=time.time()))


def stopped(number: int, *, begun: bool = False, code: int = 0) -> Outcome:
    """An outcome for a host that was told to stop, the same on every host: none of them is to blame."""
    return failed(failure.stopped_sentence(number, begun=begun), "", code or 128 + number)


@dataclass(frozen=True, slots=True)
class Stop:
    """A signal that this host's entry was sent, and when."""

    number: int
    when: float

    def explains(self, report: FailureReport | None) -> bool:
        """Whether a failure follows from it: a program may answer a request to stop in any way."""
        return report is None or report.echo or report.when >= self.when


class LeaderLoop:
    """Runs a job on the leader. `everywhere`: each host runs the program itself; the job ends when all have."""

    def __init__(self, leader: Leader, local: Local, events: Events, everywhere: bool) -> None:
        self.leader = leader
        self.local = local
        self.events = events
        self.programs = SignalForwarder(local, events)
        self.everywhere = everywhere
        self.waiting_ready = set(leader.workers)
        self.done: dict[str, int] = {}
        self.reports: list[FailureReport] = []
        self.lost: dict[str, str] = {}
        self.gone: set[str] = set()
        self.prepared = False
        self.own_code: int | None = None
        self.stop: Stop | None = None

    def run(self, gather: Callable[[], None]) -> Outcome:
        """Meet (`gather` waits for the workers and welcomes them), run, settle, tell everybody. Never raises for a
        job's failure.
        """
        try:
            gather()
            self.local.prepare()
            outcome = self._loop()
        except JobError as error:
            outcome = failed(str(error), self.local.host)
        except Stopped as error:
            outcome = stopped(error.number)
        self.local.stop()
        self.local.finish(outcome)
        self.leader.broadcast("outcome", **outcome_fields(outcome, time.time()))
        self._wait_for("bye", _BYE_SECONDS)
        self.leader.close()
        return outcome

    def _loop(self) -> Outcome:
        started = False
        while not self._over(started):
            event = self.programs.next_event()
            self._note(event)
            if isinstance(event, Signalled):
                if not started:
                    raise Stopped(event.number)
                self.programs.terminate()
            if self.prepared and not self.waiting_ready and not started and not self._bad():
                started = True
                self.local.start()
        self.local.stop()
        self.leader.broadcast("ended")
        self._wait_for("done", _COLLECT_SECONDS)
        return self._settle()

    def _note(self, event: Event) -> None:
        match event:
            case HostPrepared(error=None):
                self.prepared = True
            case HostPrepared(error=error):
                raise JobError(str(error))
            case Exited(code=code):
                self.own_code = failure.exit_code(code)
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
                if part.report is not None:
                    self.reports.append(part.report)
            case Signalled(number=number):
                self.stop = self.stop or Stop(number, time.time())
            case _:
                pass

    def _bad(self) -> bool:
        return bool(self.lost) or any(self.done.values())

    def _over(self, started: bool) -> bool:
        if self._bad() or (self.own_code or 0) != 0:
            return True
        if not started or self.own_code is None:
            return False
        return not self.everywhere or set(self.done) >= set(self.leader.workers)

    def _wait_for(self, kind: str, seconds: float) -> None:
        """Wait until every worker that is still there has sent `kind`."""
        deadline = time.monotonic() + seconds
        heard = set(self.done) if kind == "done" else set()
        while missing := set(self.leader.connections) - heard - self.gone:
            try:
                event = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                get_logger().info("rendezvous: no %s from %s in %.0f s", kind, ", ".join(sorted(missing)), seconds)
                if kind == "done":
                    self.lost |= dict.fromkeys(sorted(missing), f"it did not answer for {seconds:.0f} s")
                return
            if isinstance(event, Lost):
                self._note(event)
            elif isinstance(event, Message) and event.kind == kind:
                self._note(event)
                heard.add(event.host)

    def _settle(self) -> Outcome:
        if self.own_code == 0 and not any(self.done.values()) and (not self.everywhere or not self.lost):
            return Outcome(0)
        found = failure.cause(self.local.reports() + self.reports)
        code = self.own_code or next((code for code in self.done.values() if code), 0)
        if self.stop is not None and self.stop.explains(found):
            return stopped(self.stop.number, begun=True, code=found.code if found else code)
        if self.lost and (found is None or found.echo):
            host, reason = next(iter(self.lost.items()))
            return failed(
                f"host {host} was lost while the job ran ({reason}); look at that host's own log, it may have run out "
                "of memory "
                "or been taken away.",
                host,
            )
        if found is not None:
            return Outcome(found.code or 1, found)
        return failed(failure.launcher_sentence(code, self.local.launcher_said()), self.local.host, code or 1)


class WorkerLoop:
    """Runs a job on a worker, once it has joined."""

    def __init__(self, connection: HostConnection, local: Local, events: Events) -> None:
        self.connection = connection
        self.local = local
        self.events = events
        self.said_done = False
        self.ready = False
        self.stop: Stop | None = None
        self.programs = SignalForwarder(local, events)

    def run(self, welcome: Callable[[dict[str, Any]], None]) -> Outcome:
        """Wait for the leader's welcome, take part, and end with the leader's outcome."""
        outcome = self._loop(welcome)
        self.local.stop()
        self.local.finish(outcome)
        self.connection.send("bye")
        self.connection.close()
        return outcome

    def _loop(self, welcome: Callable[[dict[str, Any]], None]) -> Outcome:
        while True:
            # No time limit: a leader that is alive beats, and one that isn't is Lost.
            event = self.programs.next_event()
            match event:
                case Message(kind="outcome", fields=fields):
                    return read_outcome(fields, time.time())
                case Lost(host=host, reason=reason):
                    sentence = f"the leader {host} was lost while the job ran ({reason}); look at that host's own log."
                    return failed(sentence, self.local.host)
                case Message(kind="ended"):
                    self.local.stop()
                    self._say_done(self._part(0))
                case Exited(code=code):
                    self._say_done(self._part(failure.exit_code(code)))
                case Signalled(number=number):
                    self.stop = self.stop or Stop(number, time.time())
                    self._stop(number)
                case _:
                    self._begin(event, welcome)

    def _begin(self, event: Event, welcome: Callable[[dict[str, Any]], None]) -> None:
        """The steps up to ready; a mistake is this host's end, and so the job's."""
        try:
            if isinstance(event, Message) and event.kind == "welcome":
                welcome(dict(event.fields))
                self.local.prepare()
            elif isinstance(event, HostPrepared):
                if event.error is not None:
                    raise JobError(event.error)
                self.ready = True
                self.local.start()
                self.connection.send("ready")
        except JobError as error:
            self._say_done(failed(str(error), self.local.host))

    def _part(self, code: int) -> Outcome:
        """How this host's part of the job ended; `code` is that of what it launched itself."""
        report = failure.cause(self.local.reports())
        if self.stop is not None and (code or report) and self.stop.explains(report):
            return Outcome(code, stopped(self.stop.number, begun=True, code=report.code if report else code).report)
        return Outcome(code, report)

    def _stop(self, number: int) -> None:
        if not self.programs.terminate() and not self.ready:
            self._say_done(stopped(number))

    def _say_done(self, outcome: Outcome) -> None:
        if not self.said_done:
            self.said_done = True
            self.connection.send("done", **outcome_fields(outcome, time.time()))


def outcome_fields(outcome: Outcome, now: float) -> dict[str, Any]:
    """An outcome for the wire, at the time `now` of this host's clock, of which the other side hears only how long ago
    the failure showed. With one report it fits a line; the reports of all ranks of a host may not.
    """
    if outcome.report is None:
        return {"code": outcome.code, "report": None}
    report = failure.trimmed(outcome.report)
    fields = report.to_json() | {"age": max(0.0, now - report.when)}
    del fields["when"]
    return {"code": outcome.code, "report": fields}


def read_outcome(fields: Mapping[str, Any], now: float) -> Outcome:
    """What `outcome_fields` wrote and the wire has checked, its times by this host's clock: two hosts' clocks may be
    minutes apart, and then the earlier of two failures would not be the one that showed first.
    """
    report = fields["report"]
    if report is None:
        return Outcome(fields["code"])
    return Outcome(fields["code"], FailureReport.from_json({**report, "when": now - report["age"]}))
