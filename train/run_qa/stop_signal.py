"""Receives SIGTERM and SIGINT in one rank. The first is recorded, or ends the rank if there is nothing to save; a
second one ends it at once.

SageMaker sends SIGTERM at a spot interruption, at a job's time limit and when a user stops the job, and SIGKILL 120 s
later.
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
    """This job was stopped by a signal and has saved its state; the message is one sentence for the failure file."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.exit_code = code


class StopSignal:
    """The stop signal that this process received, if any.

    A thread reads the signals, because Python runs handlers only in the main thread, which may wait for another rank
    inside a library for half an hour.
    """

    def __init__(self) -> None:
        self.number = 0  # 0: no signal yet
        self.when = 0.0  # monotonic clock
        self._outcome = ""
        self._lock = threading.Lock()

    def listen(self) -> None:
        """Start to receive signals."""
        reader, writer = socket.socketpair()
        writer.settimeout(0)  # set_wakeup_fd requires a non-blocking socket
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        for number in STOPS:
            if signal.getsignal(number) != signal.SIG_IGN:  # ignored under nohup, and by a shell's background jobs
                # Python has already written the signal's number to the socket that the thread reads.
                signal.signal(number, lambda number, frame: None)
        # A data loader's worker must not write to this process' socket when it receives a signal.
        os.register_at_fork(after_in_child=_forget)
        threading.Thread(target=self._read, args=(reader, writer), name="signals", daemon=True).start()

    def end_with(self, outcome: str) -> None:
        """From now on a signal ends the process at once: nothing is to be saved. `outcome`: the end of its sentence."""
        with self._lock:
            self._outcome = outcome
            if self.number:
                self._end()

    def hold(self) -> None:
        """From now on the first signal is only recorded: the training checks `number`, saves and ends."""
        with self._lock:
            self._outcome = ""

    def name(self) -> str:
        """The signal's name; SIGTERM if only another rank has received one."""
        return signal_name(self.number or signal.SIGTERM)

    def stopped(self, outcome: str) -> JobStopped:
        """The exception that ends a job after it has saved. `outcome`: the rest of its sentence."""
        return JobStopped(self._stopped_sentence(outcome), exit_code(-(self.number or signal.SIGTERM)))

    def _stopped_sentence(self, outcome: str) -> str:
        return f"the job was stopped ({self.name()}) {outcome}"

    def _read(self, reader: socket.socket, _writer: socket.socket) -> None:
        while data := reader.recv(1):
            if data[0] in STOPS:
                self._receive(data[0])

    def _receive(self, number: int) -> None:
        with self._lock:
            if self.number:
                os._exit(exit_code(-number))
            self.number, self.when = number, time.monotonic()
            if self._outcome:
                self._end()

    def _end(self) -> None:
        report.failure(self._stopped_sentence(self._outcome))
        sys.stdout.flush()
        os._exit(exit_code(-self.number))


def _forget() -> None:
    signal.set_wakeup_fd(-1)
    for number in STOPS:
        signal.signal(number, signal.SIG_DFL)
