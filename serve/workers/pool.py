"""Starts the workers, gives them batches, restarts them when they die, and fails if they can't be started.

If a worker dies, the requests that it computed are sent to another worker once, unless they may not be repeated;
their clients notice only the delay. If a second worker dies over a request, it is refused, so that it can't take the
endpoint down.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

from berth.serve.errors import Kind, ServeError
from berth.serve.limits import RequestLimits
from berth.serve.observing.figures import StageTimes, Work
from berth.serve.workers.dispatcher import Dispatcher
from berth.serve.workers.messages import (
    BatchError,
    BatchResults,
    Failed,
    FromWorker,
    HandlerReady,
    JobRow,
    Ready,
    is_same_engine,
)
from berth.serve.workers.scheduler import QueuedJob
from berth.serve.workers.worker import Worker, WorkerSettings

log = logging.getLogger(__name__)

PROCESS = (sys.executable, "-P", "-m", "berth.serve.workers.process")
_MOST_STARTS = 3
"""Starts in a row that may fail before no further one is tried."""
_PAUSE = 1.0
"""Seconds before a worker that died before it was ready is restarted, times the number of such deaths in a row."""
_CHECK_INTERVAL = 0.5
"""Seconds between two checks for stuck workers and for requests that can't be answered in time."""


class EngineError(Exception):
    """The engine raised; the text holds the worker's traceback."""


class WorkerPool:
    """All methods may be called from any thread; only `stop` waits for a worker."""

    def __init__(
        self, workers: Sequence[WorkerSettings], limits: RequestLimits, command: Sequence[str] = PROCESS
    ) -> None:
        self._settings = workers
        self._limits = limits
        self._command = command
        self._lock = threading.Lock()
        self._afterwards: list[Callable[[], None]] = []
        self._workers: list[Worker] = []
        self._dispatcher = Dispatcher(limits)
        self._unready_deaths = 0
        self._stopped = threading.Event()
        self._on_ready: Callable[[Ready | HandlerReady], None] = lambda _: None
        self._on_failure: Callable[[str], None] = lambda _: None
        self.failure: str | None = None
        self.lacked_memory = False
        """Whether SIGKILL ended the last worker that died before it was ready: probably because memory ran out."""
        self.first: Ready | HandlerReady | None = None
        """The message of the first worker that was ready; those of all others must match it."""

    def start(self) -> None:
        """Start the workers and return at once."""
        with self._decide():
            for settings in self._settings:
                self._start(settings)
        threading.Thread(target=self._check_workers, name="workers", daemon=True).start()

    def set_callbacks(
        self, on_ready: Callable[[Ready | HandlerReady], None], on_failure: Callable[[str], None]
    ) -> None:
        """Call `on_ready` once with the message of the first worker that is ready, and `on_failure` once if no worker
        can be started; immediately if that has already happened. Both may be slow.
        """
        with self._decide():
            self._on_ready, self._on_failure = on_ready, on_failure
            if self.first is not None:
                self._afterwards.append(partial(on_ready, self.first))
            if self.failure is not None:
                self._afterwards.append(partial(on_failure, self.failure))

    def stop(self) -> None:
        """End the workers at once."""
        with self._lock:
            self._stopped.set()
            workers = list(self._workers)
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join()

    @property
    def size(self) -> int:
        """The number of workers when all are alive."""
        return len(self._settings)

    @property
    def description(self) -> str:
        """The workers in words, such as `1 with 2 threads each`."""
        one = self._settings[0]
        return f"{len(self._settings)} with {f'{one.threads} threads' if one.device == 'cpu' else 'a GPU'} each"

    @property
    def available(self) -> bool:
        """Whether a worker is ready."""
        with self._lock:
            return any(worker.slots.count for worker in self._workers)

    @property
    def work(self) -> Work:
        """The work that waits, and the work done since the start."""
        with self._lock:
            return self._dispatcher.work

    @property
    def waiting_seconds(self) -> float:
        """How long one more request is expected to wait."""
        with self._lock:
            return self._dispatcher.waiting_seconds(time.monotonic())

    def submit(
        self, rows: Sequence[JobRow], *, repeatable: bool = True, times: StageTimes | None = None
    ) -> Future[list[Any]]:
        """Queue a request's rows; ServeError (503) if too much work waits.

        The future gets one result per row, or ServeError or EngineError. It can be cancelled until then. `repeatable`:
        whether another worker may compute the request if one died over it; if not, its rows are dropped once they are
        sent. `times` gets the time in the queue and with the model.
        """
        now = time.monotonic()
        times = times or StageTimes()
        deadline = now + self._limits.seconds - (times.receive or 0.0) - (times.read or 0.0)
        job = QueuedJob(list(rows), now, deadline, repeatable, times=times)
        with self._decide():
            if self.failure is not None:
                raise ServeError(Kind.NOT_READY, self.failure)
            self._dispatcher.accept(job, now)
        job.future.add_done_callback(lambda _: self._drop(job))
        return job.future

    @contextmanager
    def _decide(self) -> Iterator[None]:
        """Hold the lock. The calls in `_afterwards` are made after it is released, because they may be slow."""
        with self._lock:
            try:
                yield
            finally:
                calls, self._afterwards = self._afterwards, []
        for call in calls:
            try:
                call()
            except Exception:
                log.exception("unexpected error in a worker's callback")

    def _drop(self, job: QueuedJob) -> None:
        if job.future.cancelled():
            with self._lock:
                self._dispatcher.drop(job)

    def _start(self, settings: WorkerSettings, pause: float = 0.0) -> None:
        worker = Worker(settings, self._command, self._handle, self._replace)
        self._workers.append(worker)
        self._dispatcher.workers.append(worker.slots)
        self._afterwards.append(partial(worker.start, pause))

    def _check_workers(self) -> None:
        """Kill workers that are stuck in a batch for longer than a request may take, and refuse requests that can't be
        answered in time.
        """
        while not self._stopped.wait(_CHECK_INTERVAL):
            now = time.monotonic()
            with self._decide():
                for worker in self._workers:
                    if worker.slots.count and (seconds := worker.slots.seconds(now)) > self._limits.seconds:
                        log.error("a worker has computed one batch for %.0f s and is killed", seconds)
                        worker.slots.count = 0
                        self._afterwards.append(worker.kill)
                    self._afterwards.append(worker.notice_end)
                for job, refusal in self._dispatcher.refuse_late(now):
                    self._reject(job, refusal)

    def _handle(self, worker: Worker, message: FromWorker) -> None:
        now = time.monotonic()
        with self._decide():
            match message:
                case Ready() | HandlerReady():
                    self._note_ready(worker, message)
                case Failed(sentence):
                    worker.failure = sentence
                case BatchResults(number, results):
                    for job in self._dispatcher.complete(worker.slots, number, results, now):
                        answers = [job.results[index] for index in range(len(job.rows))]
                        self._afterwards.append(partial(_end, job, answers))
                case BatchError(number, error, trace):
                    for job in self._dispatcher.fail(worker.slots, number):
                        self._reject(job, EngineError(f"{error}\n{trace}"))
            self._dispatcher.dispatch(now)

    def _note_ready(self, worker: Worker, ready: Ready | HandlerReady) -> None:
        if self.first is not None and not is_same_engine(self.first, ready):
            log.error("a worker's engine differs from the first worker's (%s): the worker is restarted", ready)
            self._afterwards.append(worker.kill)
            return
        self._unready_deaths = 0
        worker.was_ready = True
        worker.slots.count, worker.slots.rows = ready.slots, ready.rows
        if isinstance(ready, Ready) and ready.seconds_per_token:
            self._dispatcher.speed.begin(ready.seconds_per_token)
        if self.first is None:
            self.first = ready
            self._afterwards.append(partial(self._on_ready, ready))

    def _replace(self, worker: Worker) -> None:
        """Start another worker in place of one that has ended, and queue its work again."""
        now = time.monotonic()
        with self._decide():
            if self._stopped.is_set():
                return
            self._workers.remove(worker)
            for job in self._dispatcher.lose(worker.slots, now):
                who = "the worker has died" if job.deaths == 1 else f"{job.deaths} workers in turn have died"
                sentence = f"{who} ({worker.ended_by}) over this request: it is given up"
                self._reject(job, ServeError(Kind.GIVEN_UP, sentence))
            if worker.was_ready:
                log.warning("a worker has died (%s): another one is started in its place", worker.ended_by)
                self._start(worker.settings)
            else:
                self._note_unready_death(worker)
            self._dispatcher.dispatch(now)

    def _note_unready_death(self, worker: Worker) -> None:
        """Restart a worker that died while it loaded the model, or give it up.

        It is given up if it sent an error, because the same files would give the same error; if no worker was ever
        ready; or after _MOST_STARTS deaths in a row.
        """
        self._unready_deaths += 1
        self.lacked_memory = worker.ended_by == "SIGKILL"
        if not worker.failure and self.first is not None and self._unready_deaths < _MOST_STARTS:
            log.warning("a worker has died while it loaded the model (%s): it is restarted", worker.ended_by)
            self._start(worker.settings, _PAUSE * self._unready_deaths)
            return
        # The kernel sends SIGKILL if memory runs out. Any other end comes from the model's code or a library.
        advice = "give the container more memory" if self.lacked_memory else "the lines above show what it did last"
        sentence = worker.failure or f"the worker died while it loaded the model ({worker.ended_by}): {advice}"
        if self._workers:
            log.error("%s (%d of %d workers are left)", sentence, len(self._workers), len(self._settings))
        else:
            self._fail(sentence)

    def _fail(self, sentence: str) -> None:
        self.failure = sentence
        for job in self._dispatcher.drop_all():
            self._reject(job, ServeError(Kind.NOT_READY, sentence))
        self._afterwards.append(partial(self._on_failure, sentence))

    def _reject(self, job: QueuedJob, error: Exception) -> None:
        self._afterwards.append(partial(_end, job, error))


def _end(job: QueuedJob, result: list[Any] | Exception) -> None:
    """Set the future's result or exception, unless the request was cancelled."""
    if job.future.done() or not job.future.set_running_or_notify_cancel():
        return
    if isinstance(result, Exception):
        job.future.set_exception(result)
    else:
        job.future.set_result(result)
