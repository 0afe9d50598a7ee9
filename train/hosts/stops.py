"""Stopping a job: forwards signals to this host's programs, limits their time, and decides how the job has ended.

One signal to one host stops the whole job, because the leader forwards it to all others (launching/session.py).
Programs get SIGTERM once, and once more if an entry gets a second signal.
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
"""From the first signal until this host ends its programs. The rest of SageMaker's 120 s is for the failure file."""
AT_ONCE_SECONDS = 3.0
"""Time left after a second signal."""
_AGAIN_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Stop:
    """A signal to a host's entry, and when this host learnt of it. `count` 2: the second signal, to end at once."""

    number: int
    count: int
    when: float

    def explains(self, report: FailureReport | None) -> bool:
        """Whether the signal explains a failure. It explains all that come after it: programs may react in any way."""
        return report is None or report.echo or report.when >= self.when


class SignalForwarder:
    """Forwards stop signals to this host's programs, some of which may start later or take long to end."""

    def __init__(self, send: Callable[[int, int], None], events: Events) -> None:
        """`send(number, count)` sends a signal to each program that has received fewer than `count` signals."""
        self.active: Stop | None = None
        self.overdue = False
        self._send = send
        self._events = events
        self._received = 0
        self._deadline = math.inf

    def count_signal(self, number: int) -> Stop:
        """Count a signal that this host's own entry got."""
        self._received += 1
        return Stop(number, min(self._received, 2), time.time())

    def forward(self, stop: Stop) -> bool:
        """Forward a signal to all programs, also to those that start later; False if that is already done."""
        if self.active is not None and self.active.count >= stop.count:
            return False
        if self.active is None:
            self._deadline = time.monotonic() + STOP_SECONDS
            limit = f"has {STOP_SECONDS:.0f} s to save and end"
        else:
            self._deadline = min(self._deadline, time.monotonic() + AT_ONCE_SECONDS)
            limit = "must end at once"
        self.active = replace(stop, when=self.active.when if self.active else stop.when)
        self._send(signal.SIGTERM, stop.count)  # before logging, which a slow reader may block
        get_logger().info("%s: stopping this job; the program %s", signal_name(stop.number), limit)
        return True

    def next_event(self) -> Event:
        """Wait for the next event, without a time limit. When a stopped job's time is over, returns StopOverdue."""
        while self.active is not None:
            try:
                return self._events.get(timeout=_AGAIN_SECONDS)
            except Empty:
                self._send(signal.SIGTERM, self.active.count)
            if time.monotonic() >= self._deadline:
                self._deadline = math.inf
                self.overdue = True
                return StopOverdue()
        return self._events.get()

    def find_cause(self, reports: Sequence[FailureReport]) -> FailureReport | None:
        """The report that explains the others. In a stopped job, a sentence that the program wrote has priority."""
        written = [report for report in reports if report.written] if self.active else []
        return failure.cause(written or reports)

    def stopped_outcome(self, report: FailureReport | None, code: int) -> Outcome | None:
        """The outcome if the stop explains the end of the job; None if it does not, or if there was no stop.

        report: the cause of the failure. code: the exit code if there is no report.
        """
        stop = self.active
        if stop is None or not stop.explains(report):
            return None
        if self.overdue:
            return stopped(stop.number, started=True, overdue=STOP_SECONDS if stop.count == 1 else 0.0)
        if report is None or not report.written:
            return stopped(stop.number, started=True, code=report.code if report else code)
        if report.code == 128 + signal.SIGTERM:  # it obeyed the signal; name no rank or host
            report = replace(report, host="", rank=None, detail=())
        return Outcome(report.code, report)
