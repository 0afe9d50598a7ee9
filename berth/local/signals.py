"""Ctrl-C and SIGTERM as a flag that loops look at, instead of an exception that may strike in the middle of a call.

An exception between "the engine made a container" and "we know its name" would leave that container behind. The flag is
looked at between calls to the engine, all of which are short.
"""

import signal
import threading
from types import FrameType
from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(Exception):
    """The user (or the system) asked this process to end; everything it started has been removed by then.

    sentence: what the command line says last.
    """

    def __init__(self, signum: int, sentence: str = "interrupted; what was started is gone") -> None:
        super().__init__(sentence)
        self.signum = signum
        self.exit_code = 128 + signum

    @property
    def by(self) -> str:
        """The signal as a person calls it."""
        return "Ctrl-C" if self.signum == signal.SIGINT else signal.Signals(self.signum).name


class Interrupts:
    """While entered, catches SIGINT, SIGTERM and SIGHUP; counts them, and wakes whoever waits.

    Outside the main thread Python delivers no signals: nothing is caught there, and nothing has to be.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self.count = 0
        self._event = threading.Event()
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for each in _SIGNALS:
                if signal.getsignal(each) != signal.SIG_IGN:  # nohup and background shells ask to be left alone
                    self._previous[each] = signal.signal(each, self._caught)
        return self

    def __exit__(self, *error: object) -> None:
        for each, handler in self._previous.items():
            signal.signal(each, handler)  # type: ignore[arg-type]  # what signal.signal itself returned

    def check(self) -> None:
        """Raises Interrupted if a signal has come."""
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
