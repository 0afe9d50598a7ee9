"""A program's stderr, as far as a report needs it: its last lines, and the exception at its end."""

from collections import deque
from dataclasses import dataclass, field

from berth.train.failures import raised
from berth.train.failures.raised import Raised

KEPT_LINES = 1000
"""Enough for 300 frames of Python 3.11 (three lines each); a longer traceback is a recursion with repeating lines."""
_DETAIL_LINES = 60
_BURST_SECONDS = 0.2
"""Limit between two lines that a program writes in one go."""
_CLOSING_LINES = 10
_LINE_CHARACTERS = 8192


@dataclass(slots=True)
class StderrText:
    """The last lines, each with the time at which it was read (seconds since the epoch), and an empty one per pause."""

    lines: deque[tuple[str, float]] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))

    def add(self, line: str, when: float) -> None:
        """Add the next line, without its prefix `[rank0]: `."""
        if self.lines and when - self.lines[-1][1] > _BURST_SECONDS:
            self.lines.append(("", when))  # ends an exception's message: later lines are not part of it
        self.lines.append((raised.TRACEBACK if raised.begins_traceback(line) else line[:_LINE_CHARACTERS], when))

    @property
    def detail(self) -> list[str]:
        """The last lines that are not empty."""
        return [line for line, _ in self.lines if line.strip()][-_DETAIL_LINES:]

    def ending_traceback(self) -> tuple[Raised, float] | None:
        """The exception at the end of the output, and when it was printed. None if other lines follow the last
        traceback, because then the exception was caught and logged. A launcher's exception is only returned if there is
        no other: its child's traceback comes before it, if the child printed one.
        """
        lines = [line for line, _ in self.lines]
        printed = raised.tracebacks(lines)
        if not printed or any(not raised.is_noise(line) for line in lines[printed[-1][1] :]):
            return None
        exception, end = next((item for item in reversed(printed) if not item[0].is_launchers), printed[-1])
        return exception, self.lines[end - 1][1]

    def _after_tracebacks(self) -> list[str]:
        """The lines after the first line of the last exception's message, without warnings; if there are none, all."""
        lines = raised.without_warnings([line for line, _ in self.lines])
        ends = [end - item.message.count("\n") for item, end in raised.tracebacks(lines)]
        return lines[max(ends, default=0) :] or lines

    def closing_lines(self) -> list[str]:
        """The last lines that the program wrote in one go: `raise SystemExit(text)` may print several."""
        closing: deque[str] = deque(maxlen=_CLOSING_LINES)
        for line in reversed(self._after_tracebacks()):
            if closing and raised.is_noise(line):
                break
            if line.strip():
                closing.appendleft(line.strip())
            if len(closing) == _CLOSING_LINES or ": error: " in line:  # argparse's, without the usage before it
                break
        return list(closing)
