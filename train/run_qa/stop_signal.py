"""SIGTERM and SIGINT of one rank: the first is noted, or ends the rank where nothing is to be saved; a second always.

SageMaker sends SIGTERM when it takes a host away, at a job's time limit and when a user stops the job, and SIGKILL
120 s later.
"""

import os
import signal
import socket
import sys
import threading
import time

from berth.runtime.codes import exit_code, signal_name
from berth.train.run_qa.reporting import report

STOPS = (signal.SIGTERM, signal.SIGINT)


class JobStopped(Exception):
    """This job was told to stop, and has saved what there was; the message is one sentence for the failure file."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.exit_code = code


class StopSignal:
    """What this process was told, from its first line on.

    A thread reads the signals: Python calls handlers in the main thread alone, which may be waiting for another rank
    inside a library for half an hour.
    """

    def __init__(self) -> None:
        self.number = 0  # 0: not told to stop
        self.when = 0.0  # by the monotonic clock
        self._how_far = ""
        self._lock = threading.Lock()

    def listen(self) -> None:
        """From now on a signal comes here."""
        reader, writer = socket.socketpair()
        writer.settimeout(0)  # as set_wakeup_fd asks for
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        for number in STOPS:
            if signal.getsignal(number) != signal.SIG_IGN:  # nohup, and shells for what they run in the background
                signal.signal(number, _noted_by_the_thread)
        # A data loader's process must not answer for this one when it is ended.
        os.register_at_fork(after_in_child=_forget)
        threading.Thread(target=self._read, args=(reader, writer), name="signals", daemon=True).start()

    def end_with(self, how_far: str) -> None:
        """From now on a signal ends the process at once, for nothing is to be saved; its sentence says `how_far`."""
        with self._lock:
            self._how_far = how_far
            if self.number:
                self._end()

    def hold(self) -> None:
        """The first signal is only noted: who trains looks at `number` and ends in good order."""
        with self._lock:
            self._how_far = ""

    def name(self) -> str:
        """Of the signal. Where only another rank has had one, this rank says the usual."""
        return signal_name(self.number or signal.SIGTERM)

    def stopped(self, how_far: str) -> JobStopped:
        """What ends a job in good order: its sentence says how far it came."""
        return JobStopped(self._sentence_of(how_far), exit_code(-(self.number or signal.SIGTERM)))

    def _sentence_of(self, how_far: str) -> str:
        return f"the job was stopped ({self.name()}) {how_far}"

    def _read(self, reader: socket.socket, _writer: socket.socket) -> None:
        while data := reader.recv(1):
            if data[0] in STOPS:
                self._told(data[0])

    def _told(self, number: int) -> None:
        with self._lock:
            if self.number:
                os._exit(exit_code(-number))
            self.number, self.when = number, time.monotonic()
            if self._how_far:
                self._end()

    def _end(self) -> None:
        report.failure(self._sentence_of(self._how_far))
        sys.stdout.flush()
        os._exit(exit_code(-self.number))


def _noted_by_the_thread(_number: int, _frame: object) -> None:
    """What the kernel tells is written to the thread's socket before this is called."""


def _forget() -> None:
    signal.set_wakeup_fd(-1)
    for number in STOPS:
        signal.signal(number, signal.SIG_DFL)
