"""Ctrl-C and SIGTERM as a flag that loops check, instead of an exception that may interrupt a call.

An exception after the engine has created a container, and before we know its name, would leave the container behind.
The flag is checked between calls to the engine, all of which are short.
"""

import signal
import threading
from types import FrameType
from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """A signal told this process to end; everything it started has been removed by then.

    sentence: the command's last line.
    """

    def __init__(self, signum: int, sentence: str = "interrupted; what this command started is removed") -> None:
        super().__init__(sentence)
        self.signum = signum
        self.exit_code = 128 + signum

    @property
    def by(self) -> str:
        """The signal's name for a person: Ctrl-C or SIGTERM."""
        return "Ctrl-C" if self.signum == signal.SIGINT else signal.Signals(self.signum).name


class Interrupts:
    """As a context manager, catches and counts SIGINT, SIGTERM and SIGHUP, and ends `wait`.

    In other threads than the main one it catches nothing, because Python delivers signals to the main thread only.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self.count = 0
        self._event = threading.Event()
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for each in _SIGNALS:
                if signal.getsignal(each) != signal.SIG_IGN:  # nohup and background shells ignore signals on purpose
                    self._previous[each] = signal.signal(each, self._caught)
        return self

    def __exit__(self, *error: object) -> None:
        for each, handler in self._previous.items():
            signal.signal(each, handler)  # type: ignore[arg-type]  # what signal.signal itself returned

    def check(self) -> None:
        """Raises Interrupted if there was a signal."""
        if self.signum is not None:
            raise Interrupted(self.signum)

    def wait(self, seconds: float) -> None:
        """Sleeps at most `seconds`; raises Interrupted as soon as a signal comes."""
        self._event.wait(seconds)
        self.check()

    def _caught(self, signum: int, frame: FrameType | None) -> None:
        self.signum = self.signum or signum
        self.count += 1
        self._event.set()
