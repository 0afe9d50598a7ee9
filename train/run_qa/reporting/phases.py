"""The seconds of each phase of a job. Each second belongs to one phase, so their sum is the age of the process."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PHASES = ("start", "features", "training", "evaluation", "saving")


def process_age() -> float:
    """Seconds since this process was started."""
    fields = Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # proc(5): starttime, in ticks since boot
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


class PhaseClock:
    """Adds up the seconds of each phase. The first phase, `start`, began `age` seconds ago."""

    def __init__(self, age: float, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._phase = PHASES[0]
        self._since = now() - age
        self._spent = dict.fromkeys(PHASES, 0.0)

    def switch(self, phase: str) -> str:
        """Begin or continue a phase; returns the previous one."""
        before, now = self._phase, self._now()
        self._spent[before] += now - self._since
        self._phase, self._since = phase, now
        return before

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """A phase inside another one, which continues afterwards."""
        before = self.switch(phase)
        try:
            yield
        finally:
            self.switch(before)

    def spent(self) -> dict[str, float]:
        """Seconds by phase until now."""
        self.switch(self._phase)
        return dict(self._spent)
