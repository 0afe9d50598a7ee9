"""Whole lines out of a program's output, progress bars tamed. Pure: bytes in, lines out.

A progress bar rewrites its line with carriage returns, hundreds of times a minute: in a job's log each would be a line.
Of such rewrites only the last one before a newline is kept, and one every PROGRESS_SECONDS meanwhile, so that a person
still sees the job move.
"""

PROGRESS_SECONDS = 10.0
_LONGEST_BYTES = 1 << 22
"""A line that is longer is cut, not inside a character of UTF-8."""


class LineBuffer:
    """Cuts a stream into lines."""

    def __init__(self) -> None:
        self._pending = b""
        self._shown_at = 0.0

    def feed(self, data: bytes, now: float) -> list[bytes]:
        """Lines (without newline) that are complete once `data` has come at `now` (seconds)."""
        *complete, self._pending = (self._pending + data).split(b"\n")
        lines = [_shown(line) for line in complete]
        # Carriage returns at the very end may belong to a \r\n whose \n is still to come: no rewrite yet.
        begun = self._pending.rstrip(b"\r")
        returns = self._pending[len(begun) :]
        progress, mark, rest = begun.rpartition(b"\r")
        if mark and progress.strip():
            if now - self._shown_at >= PROGRESS_SECONDS:
                self._shown_at = now
                lines.append(_shown(progress))
                self._pending = b"\r" + rest + returns
            else:
                # Only the newest rewrite can still be shown.
                self._pending = progress.rpartition(b"\r")[2] + b"\r" + rest + returns
        if len(self._pending) > _LONGEST_BYTES:
            size = len(self._pending)
            # Before the last character, which may not be complete.
            cut = next((at for at in range(size - 1, size - 5, -1) if self._pending[at] & 0xC0 != 0x80), size)
            lines.append(_shown(self._pending[:cut]))
            self._pending = self._pending[cut:]
        return lines

    def end(self) -> list[bytes]:
        """What is left when the stream ends."""
        rest, self._pending = _shown(self._pending), b""
        return [rest] if rest else []


def _shown(line: bytes) -> bytes:
    """What a terminal would show at the end: the last rewrite that isn't blank."""
    return next((part for part in reversed(line.split(b"\r")) if part.strip()), b"")
