"""A job that is told to stop: what its programs are sent, how long they have, and how the job has ended then.

One host's signal is enough, for the leader tells all others (session). Programs get SIGTERM once, and once more where
an entry was sent a second signal.
"""

import math
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from queue import Empty

from berth.runtime.codes import signal_name
from berth.train.failures import failure
from berth.train.failures.failure import FailureReport
from berth.train.hosts.events import Event, Events, StopOverdue
from berth.train.hosts.log import get_logger
from berth.train.hosts.outcome import Outcome, stopped

STOP_SECONDS = 110.0
"""From the signal until this host ends what still runs: of SageMaker's 120 s the rest is for the failure file."""
AT_ONCE_SECONDS = 3.0
"""Time left after a second signal."""
_AGAIN_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Stop:
    """A signal that a host's entry was sent, and when this host heard of it. `count` 2: a second, to end at once."""

    number: int
    count: int
    when: float

    def explains(self, report: FailureReport | None) -> bool:
        """Whether a failure follows from it: a program may answer a request to stop in any way."""
        return report is None or report.echo or report.when >= self.when


class Programs:
    """This host's programs as a stop finds them: some may not have started yet, and some take long to end."""

    def __init__(self, send: Callable[[int, int], None], events: Events) -> None:
        """`send(number, count)` has each program get a signal that has had fewer than `count` of them."""
        self.told: Stop | None = None
        self.overdue = False
        self._send = send
        self._events = events
        self._heard = 0
        self._deadline = math.inf

    def heard(self, number: int) -> Stop:
        """This host's own entry was sent a signal."""
        self._heard += 1
        return Stop(number, min(self._heard, 2), time.time())

    def tell(self, stop: Stop) -> bool:
        """Pass a signal on to all programs, those that start later included; False if they have had as many."""
        if self.told is not None and self.told.count >= stop.count:
            return False
        if self.told is None:
            self._deadline = time.monotonic() + STOP_SECONDS
            what = f"has {STOP_SECONDS:.0f} s to save and end"
        else:
            self._deadline = min(self._deadline, time.monotonic() + AT_ONCE_SECONDS)
            what = "is to end at once"
        self.told = replace(stop, when=self.told.when if self.told else stop.when)
        self._send(signal.SIGTERM, stop.count)  # before the line: a log that nobody reads must not hold it back
        get_logger().info("%s: this job is stopped, and what runs %s", signal_name(stop.number), what)
        return True

    def next_event(self) -> Event:
        """Wait for the next event, without a time limit; in a job that is stopped StopOverdue comes after a while."""
        while self.told is not None:
            try:
                return self._events.get(timeout=_AGAIN_SECONDS)
            except Empty:
                self._send(signal.SIGTERM, self.told.count)
            if time.monotonic() >= self._deadline:
                self._deadline = math.inf
                self.overdue = True
                return StopOverdue()
        return self._events.get()

    def cause(self, reports: Sequence[FailureReport]) -> FailureReport | None:
        """The report that explains the others. Of a job that is stopped what the program itself wrote goes first."""
        written = [report for report in reports if report.written] if self.told else []
        return failure.cause(written or reports)

    def stopped(self, report: FailureReport | None, code: int) -> Outcome | None:
        """How a stopped job ended whose cause is `report`, with exit code `code` if it has none; None if no stop
        explains that.
        """
        stop = self.told
        if stop is None or not stop.explains(report):
            return None
        if self.overdue:
            return stopped(stop.number, begun=True, overdue=STOP_SECONDS if stop.count == 1 else 0.0)
        if report is None or not report.written:
            return stopped(stop.number, begun=True, code=report.code if report else code)
        if report.code == 128 + signal.SIGTERM:  # it ended as it was told to, and no rank or host is to blame
            report = replace(report, host="", rank=None, detail=())
        return Outcome(report.code, report)
