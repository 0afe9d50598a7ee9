"""When each partition computed which microbatch: recorded and drawn where BERTH_SMP_SCHEDULE names a folder.

People would rather look than read: a picture shows whether partitions wait for each other, and for which microbatch.
"""

import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .schedule_picture import Computed, picture

FOLDER = "BERTH_SMP_SCHEDULE"
MOST_PICTURES = 10


class Stopwatch:
    """What this rank computes in a step. One of a rank's threads computes at a time, so that one start is enough."""

    def __init__(self) -> None:
        self._runs, self._start = FOLDER in os.environ, 0.0
        self._spans: list[Computed] = []

    def begin(self) -> None:
        """From here on this rank computes."""
        self._start = time.time()

    def end(self, microbatch: int, *, backward: bool) -> None:
        """It did so for this microbatch until now; what it computes next begins here."""
        start, self._start = self._start, time.time()
        if self._runs:
            self._spans.append(Computed(microbatch, backward, start, self._start))

    @contextmanager
    def runs(self, microbatch: int, *, backward: bool) -> Iterator[None]:
        """It computes for this microbatch inside."""
        self.begin()
        try:
            yield
        finally:
            self.end(microbatch, backward=backward)

    def take(self) -> tuple[Computed, ...]:
        """All of the step; none is left."""
        taken, self._spans = tuple(self._spans), []
        return taken


class Pictures:
    """The first steps of a job as step-0.svg, step-1.svg …"""

    def __init__(self) -> None:
        self._folder = os.environ.get(FOLDER)
        self._drawn = 0

    def draw(self, function: str, partitions: Sequence[Sequence[Computed]]) -> None:
        """A step's picture, if one is asked for. A folder that can't be written to stops no training."""
        if not self._folder or self._drawn == MOST_PICTURES:
            return
        path = Path(self._folder) / f"step-{self._drawn}.svg"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(picture(partitions, f"step {self._drawn}: {function}"), "utf-8")
        except OSError as error:
            warnings.warn(f"smp: no picture of the schedule ({error}); let {FOLDER} name another folder.", stacklevel=2)
            self._folder = None
        self._drawn += 1
