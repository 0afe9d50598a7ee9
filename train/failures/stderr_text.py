"""A program's stderr, as far as a report needs it: the last lines, and the last tracebacks from their first line on.

Tracebacks are kept separately: a deep stack is longer than the last lines, and the user's frames are near its
beginning.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from berth.train.failures import raised
from berth.train.failures.raised import Raised

KEPT_LINES = 60
_TRACEBACKS = 8
_TRACEBACK_LINES = 600
"""Enough for 200 frames of Python 3.11 (three lines each); a longer traceback is a recursion with repeating lines."""
_BURST_SECONDS = 0.2
"""Limit between two lines that a program writes in one go."""
_CLOSING_LINES = 10
_LINE_CHARACTERS = 8192


@dataclass(slots=True)
class StderrText:
    """The last lines, each with the time at which it was read (seconds since the epoch)."""

    lines: deque[tuple[str, float]] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    _blocks: deque[list[tuple[str, float]]] = field(default_factory=lambda: deque(maxlen=_TRACEBACKS))

    def add(self, line: str, when: float) -> None:
        """Add the next line, without its prefix `[rank0]: `."""
        begins = raised.begins_traceback(line)
        line = line[:_LINE_CHARACTERS]
        paused = bool(self.lines) and when - self.lines[-1][1] > _BURST_SECONDS
        self.lines.append((line, when))
        if begins:
            self._blocks.append([])
        elif paused and self._blocks:
            self._blocks[-1].append(("", when))  # ends the exception's message: later lines are not part of it
        if self._blocks and len(self._blocks[-1]) < _TRACEBACK_LINES:
            self._blocks[-1].append((line, when))

    @property
    def detail(self) -> list[str]:
        """The last lines."""
        return [line for line, _ in self.lines]

    def ending_traceback(self) -> tuple[Raised, float] | None:
        """The exception at the end of the output, and when it was printed. None if other lines follow the last
        traceback, because then the exception was caught and logged. A launcher's exception is only returned if there is
        no other: its child's traceback comes before it, if the child printed one.
        """
        printed = [last for block in self._blocks if (last := _last_of(block)) is not None]
        if not printed:
            syntax_errors = raised.tracebacks(self.detail)  # without a "Traceback" line
            printed = [(exception, self.lines[-1][1], self.detail[end:]) for exception, end in syntax_errors[-1:]]
        if not printed or any(not raised.is_noise(line) for line in printed[-1][2]):
            return None
        exception, when, _ = next((item for item in reversed(printed) if not item[0].is_launchers), printed[-1])
        return exception, when

    def _after_tracebacks(self) -> list[tuple[str, float]]:
        """The lines after the first line of the last exception's message, without warnings; if there are none, all."""
        lines = raised.without_warnings(list(self.lines))
        ends = [end - item.message.count("\n") for item, end in raised.tracebacks([line for line, _ in lines])]
        return lines[max(ends, default=0) :] or lines

    def closing_lines(self) -> list[str]:
        """The last lines that the program wrote in one go: `raise SystemExit(text)` may print several."""
        closing: deque[str] = deque(maxlen=_CLOSING_LINES)
        last = 0.0
        for line, when in reversed(self._after_tracebacks()):
            if not line.strip():
                if closing:
                    break
                continue
            if closing and (last - when > _BURST_SECONDS or raised.is_noise(line)):
                break
            closing.appendleft(line.strip())
            last = when
            if len(closing) == _CLOSING_LINES or ": error: " in line:  # argparse's, without the usage before it
                break
        return list(closing)


def _last_of(block: Sequence[tuple[str, float]]) -> tuple[Raised, float, list[str]] | None:
    """The last exception of a block, the time of the block's first line, and the lines after the message."""
    lines = [line for line, _ in block]
    exceptions = raised.tracebacks(lines)
    if not exceptions:
        return None
    exception, end = exceptions[-1]
    return exception, block[0][1], lines[end:]
