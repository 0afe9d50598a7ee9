"""One worker: a process with the model, the socket to it, and the two threads that send to it and receive from it.

The pool never waits for a worker: it puts a batch into the worker's queue, and the worker's own thread sends it. A
process that does not read blocks only that thread.
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
"""Seconds to wait for the end of a process that has closed its socket or was killed."""
_REAPED_WITHIN = 1.0  # seconds
_POLL_INTERVAL = 0.01  # seconds


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How to start one worker: its arguments, and its variables besides the server's environment."""

    model_dir: Path
    threads: int
    device: str
    environment: Mapping[str, str] = field(default_factory=dict)


class Worker:
    """`on_message` and `on_end` are called from the worker's own threads; `on_end` once, when its process has ended."""

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
        """How it ended, such as `SIGKILL` or `exit code 1`; empty while it runs."""
        self.failure = ""
        """The error that it sent before it exited; empty if it sent none."""
        self.was_ready = False
        self._command = command
        self._on_message = on_message
        self._on_end = on_end
        self._outgoing: SimpleQueue[Batch | None] = SimpleQueue()
        self.slots = Slots(self._outgoing.put)
        self._wire: MessageWire | None = None
        self._pause = 0.0
        self._killed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)

    def start(self, pause: float = 0.0) -> None:
        """Start the process after `pause` seconds; returns at once."""
        self._pause = pause
        self._thread.start()

    def kill(self) -> None:
        """Kill the process and all processes that it has started; returns at once."""
        self.slots.count = 0
        self._killed.set()
        if self.process is not None:
            _kill(self.process)

    def join(self) -> None:
        """Wait for the end of the process, for a limited time: one that waits for a disk or a GPU can't be killed."""
        if self._thread.ident is not None:  # otherwise it was never started
            self._thread.join(_ENDS_WITHIN)

    def notice_end(self) -> None:
        """Close the socket if the process has ended: one that it started may still hold the other end open."""
        if self.process is not None and self.process.poll() is not None and self._wire is not None:
            self._wire.cut()

    def _run(self) -> None:
        if not self._killed.wait(self._pause):
            self._live()
        try:
            self._on_end(self)
        except Exception:
            log.exception("unexpected error when a worker ended")

    def _live(self) -> None:
        """Start the process; send and receive until it ends."""
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
        except Exception:
            log.exception("can't read a worker's message: the worker is killed")
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
            process_group=0,  # so that everything it starts can be killed with it
        )
        set_oom_score(process.pid, WORKER_SCORE)  # the kernel kills a worker rather than the server
        if self._killed.is_set():  # kill() was called before the process existed
            _kill(process)
        return process

    def _receive(self, wire: MessageWire) -> bool:
        """Handle one message. It is freed on return, because an answer may be large."""
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
        """Send the next batch. It is freed on return."""
        batch = self._outgoing.get()
        if batch is None:
            return False
        try:
            wire.send(batch)
        except OSError:  # the process has died; the receiving thread notices it too
            return False
        except Exception as error:  # it can't be pickled
            sentence = f"{type(error).__name__}: {error}"
            self._on_message(self, BatchError(batch.number, sentence, traceback.format_exc()))
        return True


def _end_of(process: subprocess.Popen[bytes]) -> str:
    """Wait until the process has ended and kill everything that it started; returns how it ended."""
    try:
        process.wait(_ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        _kill(process)
    code = process.wait()
    _kill(process)
    _reap(process)
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Reap the processes that the process had started: in a container the server is their new parent. They were killed,
    so they end at once, except one that waits for a disk.
    """
    until = time.monotonic() + _REAPED_WITHIN
    with suppress(ChildProcessError):  # none is left
        while time.monotonic() < until:
            if os.waitpid(-process.pid, os.WNOHANG)[0] == 0:
                time.sleep(_POLL_INTERVAL)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):  # no process of the group is left
        os.killpg(process.pid, signal.SIGKILL)


def worker_settings(model_dir: Path, count: int, gpus: int, threads: int, visible: str | None) -> list[WorkerSettings]:
    """The settings of `count` workers, which share the GPUs and threads; 0 means one per GPU, or one without a GPU.

    `threads`: this host's threads for models. `visible`: CUDA_VISIBLE_DEVICES, the names of the GPUs.
    """
    count = count or max(1, gpus)
    share = max(1, threads // count)
    if not gpus:
        return [WorkerSettings(model_dir, share, "cpu")] * count
    names = visible.split(",") if visible else [str(number) for number in range(gpus)]
    return [
        WorkerSettings(model_dir, share, "cuda", {"CUDA_VISIBLE_DEVICES": names[number % gpus]})
        for number in range(count)
    ]
