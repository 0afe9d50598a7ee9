"""Tracebacks that begin at the user's own code: without the frames of what starts his program under mpirun.

`python -m mpi4py train.py` puts nine frames of runpy and mpi4py above the first of train.py.
"""

import re

from berth.train.failures.raised import begins_traceback, without_rank

_LAUNCHER_FRAME = re.compile(
    r'^\s+File "(?:<frozen runpy>|[^"]*/runpy\.py|[^"]*/mpi4py/(?:run|__main__)\.py)", line \d'
)
_FRAME = re.compile(r'^\s+File "')


class StarterFrames:
    """Tells, line by line of a stream, which ones belong to the frames that started the program."""

    def __init__(self) -> None:
        self._above = False
        self._inside = False

    def has(self, line: str) -> bool:
        """Whether this line, the next of its stream, is of such a frame."""
        line = without_rank(line)
        if begins_traceback(line):
            self._above, self._inside = True, False
        elif self._above and _LAUNCHER_FRAME.match(line):
            self._inside = True
        elif _FRAME.match(line) or not line.startswith("    "):
            # Only at the top: what his own code runs by runpy is his to see.
            self._above = self._inside = False
        return self._inside
