"""The workers: started, given batches, started again when they die, and given up when they can't be had.

What was in a worker that died goes once more to another, or to the one that takes its place: whoever sent it sees
nothing of it. A request over which a second worker dies is given up with a sentence, so that it does not take the
endpoint down.
"""

import contextlib
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from berth.serve.errors import Kind, ServeError
from berth.serve.figures import Load, StageTimes
from berth.serve.limits import RequestLimits
from berth.serve.workers import scheduler
from berth.serve.workers.messages import Batch, BatchError, BatchResults, Failed, HandlerReady, QueuedRow, Ready
from berth.serve.workers.scheduler import PendingRequest, Scheduler, WaitingWindow

log = logging.getLogger(__name__)

PROCESS = (sys.executable, "-P", "-m", "berth.serve.workers.process")
_MOST_STARTS = 3
"""A worker that dies so often, one time after the other, before it is ready is given up."""
_MOST_DEATHS = 2
"""Workers that may die over a request before it is given up."""
_LOOKED_AFTER = 0.5
"""Seconds without a word of a worker, after which it is seen to that it is not stuck."""
_SLOW_START = 1.0 / 4000
"""Seconds for a token, before the first batch has told."""
_MEMORY = 0.9
"""What a batch counts for in the workers' speed after each one that came behind it."""


class EngineError(Exception):
    """The engine raised; the text holds the worker's traceback."""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How one worker is started: its arguments and what its environment has besides the server's."""

    model_dir: Path
    threads: int
    device: str
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Worker:
    """A process, and what it has to do. `ready` is None until it has said so."""

    settings: WorkerSettings
    process: subprocess.Popen[bytes]
    connection: "Connection[Any, Any]"
    ready: Ready | HandlerReady | None = None
    batches: dict[int, tuple[float, bool, list[WaitingWindow]]] = field(default_factory=dict)
    """In flight, by number: when each began, whether alone, and what it is."""
    failure: str = ""
    no_room: bool = False

    @property
    def free(self) -> bool:
        """Whether it can take a batch: not next to a request over which a worker has died."""
        suspects = any(window.request.deaths for _, _, batch in self.batches.values() for window in batch)
        return self.ready is not None and len(self.batches) < self.ready.slots and not suspects

    def seconds(self) -> float:
        """For how long the oldest of its batches has been with it."""
        return max((time.monotonic() - began for began, _, _ in self.batches.values()), default=0.0)


class WorkerPool:
    """Every method may be called from any thread."""

    def __init__(
        self, workers: Sequence[WorkerSettings], limits: RequestLimits, command: Sequence[str] = PROCESS
    ) -> None:
        self._settings = workers
        self._limits = limits
        self._command = command
        self._lock = threading.RLock()
        self._workers: list[_Worker] = []
        self._scheduler = Scheduler()
        self._numbers = 0
        self._seconds_per_token = _SLOW_START
        self._unready_deaths = 0
        self._computed = Load()
        self._stopped = False
        self._on_ready: Callable[[Ready | HandlerReady], None] = lambda _: None
        self._on_failure: Callable[[str], None] = lambda _: None
        self.failure: str | None = None
        self.lacked_room = False
        """Whether the last worker that died before it was ready lacked disk, or was killed, as the kernel does for lack
        of memory."""
        self.first: Ready | HandlerReady | None = None
        """What the first worker said of its model when it was ready, and every other says, too."""

    def start(self) -> None:
        """Start the workers and return at once."""
        with self._lock:
            for settings in self._settings:
                self._start(settings)

    def tell(self, on_ready: Callable[[Ready | HandlerReady], None], on_failure: Callable[[str], None]) -> None:
        """Have `on_ready` called once, with what the first worker that is ready says, and `on_failure` once when no
        worker can be had: at once where that has come to pass already.
        """
        with self._lock:
            self._on_ready, self._on_failure = on_ready, on_failure
            if self.first is not None:
                on_ready(self.first)
            if self.failure is not None:
                on_failure(self.failure)

    def stop(self) -> None:
        """End the workers, whatever they do."""
        with self._lock:
            self._stopped = True
            workers = list(self._workers)
        for worker in workers:
            worker.process.kill()
            worker.process.wait()

    @property
    def size(self) -> int:
        """How many workers there are when all are well."""
        return len(self._settings)

    @property
    def description(self) -> str:
        """Such as `1 with 2 threads each`."""
        one = self._settings[0]
        return f"{len(self._settings)} with {f'{one.threads} threads' if one.device == 'cpu' else 'a GPU'} each"

    @property
    def available(self) -> bool:
        """Whether a worker is ready."""
        with self._lock:
            return any(worker.ready and worker.process.poll() is None for worker in self._workers)

    def load_now(self) -> Load:
        """What waits, and what has been computed."""
        with self._lock:
            return replace(self._computed, tokens=self._scheduler.tokens)

    @property
    def waiting_seconds(self) -> float:
        """How long one more request would wait, as far as can be told."""
        with self._lock:
            return self._scheduler.tokens * self._seconds_per_token

    def submit(
        self, rows: Sequence[QueuedRow], *, repeatable: bool = True, times: StageTimes | None = None
    ) -> Future[list[Any]]:
        """Queue a request's rows; ServeError (503) if too much waits already. The future can be cancelled until its
        results, one for each row, are there, and ends with ServeError or EngineError if they can't be had.
        `repeatable`: whether another worker may begin with it where one has died over it; `times` gets the time in the
        queue and with the model.
        """
        request = PendingRequest(rows, time.monotonic(), repeatable, times=times or StageTimes())
        with self._lock:
            if self.failure is not None:
                raise ServeError(Kind.NOT_READY, self.failure)
            self._check(request.tokens)
            self._scheduler.add(request, self._seconds_per_token)
            self._dispatch()
        request.future.add_done_callback(lambda _: self._drop(request))
        return request.future

    def _end_if_stuck(self, worker: _Worker) -> None:
        """One that has not come back for as long as a request may take would keep its slot for ever."""
        with self._lock:
            seconds = worker.seconds()
        if seconds > self._limits.seconds:
            log.error("a worker has not come back from a batch for %.0f s: it is killed", seconds)
            worker.process.kill()
            worker.process.wait()

    def _check(self, tokens: int) -> None:
        seconds = self.waiting_seconds
        too_long = seconds - self._limits.wait_seconds
        if too_long > 0:
            waiting, retry_after = f"the model has work for {seconds:.0f} s", math.ceil(too_long)
        elif self._scheduler.tokens and self._scheduler.tokens + tokens > self._limits.waiting_tokens:
            waiting, retry_after = f"{self._scheduler.tokens} tokens wait for the model", math.ceil(seconds / 2) or 1
        else:
            return
        raise ServeError(Kind.OVERLOADED, f"{waiting} already: send the request again later", retry_after)

    def _drop(self, request: PendingRequest) -> None:
        if request.future.cancelled():
            with self._lock:
                self._scheduler.drop(request)

    def _start(self, settings: WorkerSettings) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [*self._command, str(theirs.fileno()), str(settings.model_dir), str(settings.threads), settings.device],
                env={**os.environ, **settings.environment},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        worker = _Worker(settings, process, Connection(ours.detach()))
        self._workers.append(worker)
        threading.Thread(target=self._attend, args=(worker,), name="worker", daemon=True).start()

    def _attend(self, worker: _Worker) -> None:
        """Hear what a worker says until it ends."""
        try:
            while True:
                while not worker.connection.poll(_LOOKED_AFTER):
                    self._end_if_stuck(worker)
                message = worker.connection.recv()
                with self._lock:
                    self._hear(worker, message)
        except (EOFError, OSError):
            pass
        except Exception:  # what it says can't be understood, so it can't be worked with
            log.exception("a worker's message makes no sense")
            worker.process.kill()
        worker.process.wait()
        worker.connection.close()
        with self._lock:
            if not self._stopped:
                self._replace(worker)

    def _hear(self, worker: _Worker, message: Any) -> None:
        match message:
            case Ready() | HandlerReady():
                worker.ready = message
                self._unready_deaths = 0
                if self.first is None:
                    self.first = message
                    self._on_ready(message)
            case Failed(sentence, no_room):
                worker.failure, worker.no_room = sentence, no_room
            case BatchResults(number, results):
                began, alone, batch = worker.batches.pop(number)
                self._note_speed(worker, time.monotonic() - began, batch, alone=alone)
                for request in scheduler.finish(batch, results):
                    assert request.began is not None
                    request.times.model = time.monotonic() - request.began
                    _resolve(request, [request.results[index] for index in range(len(request.rows))])
            case BatchError(number, error, trace):
                _, _, batch = worker.batches.pop(number)
                for request in {window.request: None for window in batch}:
                    self._scheduler.drop(request)
                    _reject(request, EngineError(f"{error}\n{trace}"))
        self._dispatch()

    def _note_speed(self, worker: _Worker, seconds: float, batch: Sequence[WaitingWindow], *, alone: bool) -> None:
        """A batch that ran next to others had a slot's share of all workers' speed, one that ran alone a worker's."""
        assert worker.ready is not None
        ready = sum(1 for each in self._workers if each.ready)
        share = ready * (1 if alone else worker.ready.slots)
        measured = seconds / share / sum(window.length for window in batch)
        self._seconds_per_token = _MEMORY * self._seconds_per_token + (1 - _MEMORY) * measured

    def _dispatch(self) -> None:
        """Give every free slot a batch, as long as there is work."""
        while len(self._scheduler):
            free = [each for each in self._workers if each.free]
            if not free:
                return
            worker = min(free, key=lambda each: len(each.batches))
            assert worker.ready is not None
            slots = sum(each.ready.slots for each in self._workers if each.ready)
            batch = self._scheduler.next_batch(worker.ready.rows, slots, idle=not worker.batches)
            if not batch:
                return
            self._send(worker, batch)

    def _send(self, worker: _Worker, batch: list[WaitingWindow]) -> None:
        self._numbers += 1
        alone = not worker.batches and not len(self._scheduler)
        now = time.monotonic()
        worker.batches[self._numbers] = now, alone, batch
        self._note_batch(batch, now)
        with contextlib.suppress(OSError):  # it has died, and its thread is about to see that
            worker.connection.send(Batch(self._numbers, scheduler.rows_of(batch), alone))

    def _note_batch(self, batch: Sequence[WaitingWindow], now: float) -> None:
        lengths = [window.length for window in batch]
        self._computed = replace(
            self._computed,
            batches=self._computed.batches + 1,
            windows=self._computed.windows + len(batch),
            window_tokens=self._computed.window_tokens + sum(lengths),
            padded_tokens=self._computed.padded_tokens + len(batch) * max(lengths),
        )
        for window in batch:
            request = window.request
            if request.began is None:
                request.began = now
                request.times.queue = now - request.arrived

    def _replace(self, worker: _Worker) -> None:
        """Start another worker in place of one that has ended, and give its work to it or to others."""
        self._workers.remove(worker)
        code = worker.process.returncode
        for request in {window.request: None for _, _, batch in worker.batches.values() for window in batch}:
            self._scheduler.drop(request)
            request.deaths += 1
            if request.future.done():
                continue  # nobody waits for it any more
            if request.repeatable and request.deaths < _MOST_DEATHS:
                self._scheduler.add(request, self._seconds_per_token)
            else:
                _reject(request, ServeError(Kind.GIVEN_UP, _given_up(request.deaths, code)))
        if worker.ready is not None:
            log.warning("a worker has died (%s): another one is started in its place", _end(code))
            self._start(worker.settings)
        else:
            self._note_unready_death(worker, code)
        self._dispatch()

    def _note_unready_death(self, worker: _Worker, code: int) -> None:
        """A sentence of its own is final, for the files are the same the next time; so is a first start that fails."""
        self._unready_deaths += 1
        self.lacked_room = worker.no_room or code == -signal.SIGKILL
        if not worker.failure and self.first is not None and self._unready_deaths < _MOST_STARTS:
            log.warning("a worker has died while it loaded the model (%s): once more", _end(code))
            self._start(worker.settings)
            return
        sentence = worker.failure or (
            f"the worker died while it loaded the model ({_end(code)}): give the container more memory, or look at the "
            "lines above"
        )
        if self._workers:
            log.error("%s (%d of %d workers go on)", sentence, len(self._workers), len(self._settings))
        else:
            self._fail(sentence)

    def _fail(self, sentence: str) -> None:
        self.failure = sentence
        for request in self._scheduler.take_all():
            _reject(request, ServeError(Kind.NOT_READY, sentence))
        self._on_failure(sentence)


def _end(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _given_up(deaths: int, code: int) -> str:
    who = "the worker has died" if deaths == 1 else f"{deaths} workers in turn have died"
    return f"{who} ({_end(code)}) over this request: it is given up"


def _resolve(request: PendingRequest, results: list[Any]) -> None:
    if not request.future.done() and request.future.set_running_or_notify_cancel():
        request.future.set_result(results)


def _reject(request: PendingRequest, error: Exception) -> None:
    if not request.future.done() and request.future.set_running_or_notify_cancel():
        request.future.set_exception(error)
