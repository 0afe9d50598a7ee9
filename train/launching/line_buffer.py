"""Splits a program's output into lines and thins out progress bars. Pure: bytes in, lines out.

A progress bar rewrites its line with carriage returns hundreds of times a minute; in a job's log each rewrite would be
a line. Only the last rewrite before a newline is kept, and meanwhile one every PROGRESS_SECONDS, which shows progress.
"""

PROGRESS_SECONDS = 10.0
_LONGEST_BYTES = 1 << 22
"""A longer line is cut, but not inside a UTF-8 character."""


class LineBuffer:
    """Splits a stream into lines."""

    def __init__(self) -> None:
        self._pending = b""
        self._shown_at = 0.0

    def feed(self, data: bytes, now: float) -> list[bytes]:
        """Add `data`, received at `now` (seconds); returns the lines that are now complete, without newlines."""
        *complete, self._pending = (self._pending + data).split(b"\n")
        lines = [_last_rewrite(line) for line in complete]
        # Carriage returns at the very end may be part of a \r\n whose \n has not arrived: not yet a rewrite.
        unfinished = self._pending.rstrip(b"\r")
        returns = self._pending[len(unfinished) :]
        progress, mark, rest = unfinished.rpartition(b"\r")
        if mark and progress.strip():
            if now - self._shown_at >= PROGRESS_SECONDS:
                self._shown_at = now
                lines.append(_last_rewrite(progress))
                self._pending = b"\r" + rest + returns
            else:
                # Keep only the newest rewrite: older ones will not be shown.
                self._pending = progress.rpartition(b"\r")[2] + b"\r" + rest + returns
        if len(self._pending) > _LONGEST_BYTES:
            size = len(self._pending)
            # Cut before the last character, which may be incomplete.
            cut = next((at for at in range(size - 1, size - 5, -1) if self._pending[at] & 0xC0 != 0x80), size)
            lines.append(_last_rewrite(self._pending[:cut]))
            self._pending = self._pending[cut:]
        return lines

    def end(self) -> list[bytes]:
        """The rest, when the stream has ended."""
        rest, self._pending = _last_rewrite(self._pending), b""
        return [rest] if rest else []


def _last_rewrite(line: bytes) -> bytes:
    """The last rewrite that isn't blank, as a terminal would show it."""
    return next((part for part in reversed(line.split(b"\r")) if part.strip()), b"")
