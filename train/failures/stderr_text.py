"""What a program wrote to stderr, as far as a report needs it: the last lines, and each traceback from its first line.

A deep stack is longer than what is kept of the last lines, and the user's own frames are near its beginning.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from berth.train.failures import raised
from berth.train.failures.raised import Raised

KEPT_LINES = 60
_TRACEBACKS = 8
_TRACEBACK_LINES = 600
"""Of Python 3.11, which prints three a frame; what is longer is a recursion, whose lines repeat."""
_BURST_SECONDS = 0.2
"""Between two lines that a program writes in one go."""
_CLOSING_LINES = 10
_LINE_CHARACTERS = 8192


@dataclass(slots=True)
class StderrText:
    """Lines with the time at which each came (seconds since the epoch)."""

    lines: deque[tuple[str, float]] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    _blocks: deque[list[tuple[str, float]]] = field(default_factory=lambda: deque(maxlen=_TRACEBACKS))

    def add(self, line: str, when: float) -> None:
        """The next line, without `[rank0]: `."""
        begins = raised.begins_traceback(line)
        line = line[:_LINE_CHARACTERS]
        paused = bool(self.lines) and when - self.lines[-1][1] > _BURST_SECONDS
        self.lines.append((line, when))
        if begins:
            self._blocks.append([])
        elif paused and self._blocks:
            self._blocks[-1].append(("", when))  # what comes now is no more of an exception's message
        if self._blocks and len(self._blocks[-1]) < _TRACEBACK_LINES:
            self._blocks[-1].append((line, when))

    @property
    def detail(self) -> list[str]:
        """The last lines."""
        return [line for line, _ in self.lines]

    def ending_traceback(self) -> tuple[Raised, float] | None:
        """The exception with which the output ends, and when it showed; None where something else was written after
        the last traceback, for then it was caught and logged. A launcher's own exception is passed over: its child's
        stands above it, if the child printed one.
        """
        found = [last for block in self._blocks if (last := _last_of(block)) is not None]
        if not found:
            alone = raised.tracebacks(self.detail)  # a SyntaxError's, without a first line
            found = [(exception, self.lines[-1][1], self.detail[end:]) for exception, end in alone[-1:]]
        if not found or any(not raised.is_noise(line) for line in found[-1][2]):
            return None
        chosen = next((each for each in reversed(found) if not each[0].is_launchers), found[-1])
        return chosen[0], chosen[1]

    def _behind_tracebacks(self) -> list[tuple[str, float]]:
        """What was written behind the last exception, without warnings; everything if nothing was."""
        lines = raised.without_chatter(list(self.lines))
        ends = [end - each.message.count("\n") for each, end in raised.tracebacks([line for line, _ in lines])]
        return lines[max(ends, default=0) :] or lines

    def closing_lines(self) -> list[str]:
        """The lines that the program wrote last, in one go: `raise SystemExit(text)` may print several."""
        closing: deque[str] = deque(maxlen=_CLOSING_LINES)
        last = 0.0
        for line, when in reversed(self._behind_tracebacks()):
            if not line.strip():
                if closing:
                    break
                continue
            if closing and (last - when > _BURST_SECONDS or raised.is_noise(line)):
                break
            closing.appendleft(line.strip())
            last = when
            if len(closing) == _CLOSING_LINES or ": error: " in line:  # argparse's, behind its usage
                break
        return list(closing)


def _last_of(block: Sequence[tuple[str, float]]) -> tuple[Raised, float, list[str]] | None:
    """The exception of one traceback, when its first line came, and what was written behind its message."""
    lines = [line for line, _ in block]
    found = raised.tracebacks(lines)
    if not found:
        return None
    exception, end = found[-1]
    return exception, block[0][1], lines[end:]
