"""One worker: a process with the model, the socket to it, and the two threads that write to it and read from it.

The pool decides under its lock and never waits for a worker: a batch goes into the worker's queue, from which its own
thread sends it. A process that does not read keeps that thread waiting, and nobody else.
"""

import logging
import os
import signal
import socket
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from berth.runtime.memory import WORKER_SCORE, set_oom_score
from berth.serve.workers.dispatcher import Slots
from berth.serve.workers.messages import Batch, BatchError, FromWorker, MessageWire

log = logging.getLogger(__name__)

_ENDS_WITHIN = 5.0
"""Seconds after which a process that has closed its socket, or was killed, is not waited for any longer."""
_REAPED_WITHIN = 1.0  # seconds
_LOOK = 0.01  # seconds


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How one worker is started: its arguments and what its environment has besides the server's."""

    model_dir: Path
    threads: int
    device: str
    environment: Mapping[str, str] = field(default_factory=dict)


class Worker:
    """`on_message` and `on_end` are called from the worker's own threads, `on_end` once, when its process has ended."""

    def __init__(
        self,
        settings: WorkerSettings,
        command: Sequence[str],
        on_message: Callable[["Worker", FromWorker], None],
        on_end: Callable[["Worker"], None],
    ) -> None:
        self.settings = settings
        self.process: subprocess.Popen[bytes] | None = None
        self.ended_by = ""
        """Such as `SIGKILL` or `exit code 1`, once it has ended."""
        self.failure = ""
        """The sentence with which it said that it can't answer."""
        self.no_room = False
        """Whether that was for lack of disk."""
        self.was_ready = False
        self._command = command
        self._on_message = on_message
        self._on_end = on_end
        self._outgoing: SimpleQueue[Batch | None] = SimpleQueue()
        self.slots = Slots(self._outgoing.put)
        self._wire: MessageWire | None = None
        self._pause = 0.0
        self._to_end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)

    def start(self, pause: float = 0.0) -> None:
        """Start the process, after a pause of so many seconds; return at once."""
        self._pause = pause
        self._thread.start()

    def kill(self) -> None:
        """End the process and all that it has started, whatever they do; return at once."""
        self.slots.count = 0
        self._to_end.set()
        if self.process is not None:
            _kill(self.process)

    def join(self) -> None:
        """Wait until the process has ended, but not for long: one that waits for a disk or a GPU can't be killed."""
        if self._thread.ident is not None:  # else it was never started, and will not be
            self._thread.join(_ENDS_WITHIN)

    def look_after(self) -> None:
        """See to it that the end of the process is noticed, also if one that it has started still holds the socket."""
        if self.process is not None and self.process.poll() is not None and self._wire is not None:
            self._wire.cut()

    def _run(self) -> None:
        if not self._to_end.wait(self._pause):
            self._live()
        try:
            self._on_end(self)
        except Exception:
            log.exception("the end of a worker could not be dealt with")

    def _live(self) -> None:
        """Start the process, send and receive until it ends."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._wire = wire = MessageWire(ours)
            try:
                process = self._start_process(theirs)
            except (OSError, ValueError) as error:
                self.ended_by = f"it can't be started: {getattr(error, 'strerror', None) or error}"
                wire.close()
                return
        sender = threading.Thread(target=self._send_all, args=(wire,), name="worker-send", daemon=True)
        sender.start()
        try:
            while self._receive(wire):
                pass
        except Exception:  # what it says can't be understood, so it can't be worked with
            log.exception("a worker's message makes no sense")
            _kill(process)
        self.slots.count = 0
        wire.cut()
        self._outgoing.put(None)
        sender.join()
        wire.close()
        self.ended_by = _end_of(process)

    def _start_process(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        settings = self.settings
        self.process = process = subprocess.Popen(
            [*self._command, str(theirs.fileno()), str(settings.model_dir), str(settings.threads), settings.device],
            env={**os.environ, **settings.environment},
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            process_group=0,  # with which all that it starts can be ended
        )
        set_oom_score(process.pid, WORKER_SCORE)  # rather than the server, with which all would end
        if self._to_end.is_set():  # which came before there was a process
            _kill(process)
        return process

    def _receive(self, wire: MessageWire) -> bool:
        """Take one message, and forget it: an answer may be large."""
        try:
            message = wire.receive()
        except (EOFError, OSError):
            return False
        self._on_message(self, message)
        return True

    def _send_all(self, wire: MessageWire) -> None:
        while self._send(wire):
            pass

    def _send(self, wire: MessageWire) -> bool:
        """Send the next batch, and forget it."""
        batch = self._outgoing.get()
        if batch is None:
            return False
        try:
            wire.send(batch)
        except OSError:  # it has died, which the other thread sees, too
            return False
        except Exception as error:  # it has no pickle
            sentence = f"{type(error).__name__}: {error}"
            self._on_message(self, BatchError(batch.number, sentence, traceback.format_exc()))
        return True


def _end_of(process: subprocess.Popen[bytes]) -> str:
    """Wait until the process has ended, and end what it has started; how it ended."""
    try:
        process.wait(_ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        _kill(process)
    code = process.wait()
    _kill(process)
    _reap(process)
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Take what the process had started from the kernel's table: in a container the server is their next parent. They
    were killed, so they end at once, but for one that waits for a disk.
    """
    until = time.monotonic() + _REAPED_WITHIN
    with suppress(ChildProcessError):  # there is none, or not any more
        while time.monotonic() < until:
            if os.waitpid(-process.pid, os.WNOHANG)[0] == 0:
                time.sleep(_LOOK)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):  # nothing is left of its group
        os.killpg(process.pid, signal.SIGKILL)


def worker_settings(model_dir: Path, wanted: int, gpus: int, threads: int, visible: str | None) -> list[WorkerSettings]:
    """One worker for each GPU, or as many as are `wanted`, which share what there is.

    `threads` are those of this host for models; `visible` is CUDA_VISIBLE_DEVICES, which says what GPU 0 is.
    """
    count = wanted or max(1, gpus)
    share = max(1, threads // count)
    if not gpus:
        return [WorkerSettings(model_dir, share, "cpu")] * count
    names = visible.split(",") if visible else [str(number) for number in range(gpus)]
    return [
        WorkerSettings(model_dir, share, "cuda", {"CUDA_VISIBLE_DEVICES": names[number % gpus]})
        for number in range(count)
    ]
