"""One model: its workers, its state, and how it answers.

States: loading → ready, or loading → failed. A ready service fails if its workers can't be restarted. A stop leads from
any state to stopping, in which accepted requests are still answered.
"""

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from berth.qa.tokenizer import PairTokenizer
from berth.serve.admission import Share
from berth.serve.configuration import variables
from berth.serve.errors import Kind, ServeError
from berth.serve.limits import BodyLimits, RequestLimits, for_handler
from berth.serve.models.answering import Answering, HandlerAnswering, QuestionAnswering
from berth.serve.observing.figures import Work
from berth.serve.questions.codecs import split
from berth.serve.questions.question_answering import ModelTraits
from berth.serve.workers.messages import HandlerReady, Ready
from berth.serve.workers.pool import WorkerPool

log = logging.getLogger(__name__)

STOPPING = "the server is stopping: send the request to another one"


class Service:
    """Workers with one model."""

    def __init__(
        self, pool: WorkerPool, limits: RequestLimits, name: str = "", environ: Mapping[str, str] = os.environ
    ) -> None:
        """`name`: the model's name in log lines, on a multi-model endpoint. `environ`: the server's environment."""
        self.pool = pool
        self.limits = limits
        self.failure: str | None = None
        self.stopping = False
        self.active = 0
        """Requests that are being read or answered. Only the event loop changes it."""
        self.bodies = Share(0, "bytes of requests are being received", lambda: self.waiting_seconds)
        """Bytes of their bodies. The limit is set when a worker is ready."""
        self._environ = environ
        self._log_prefix = f"{name}: " if name else ""
        self._answering: Answering | None = None  # once a worker is ready

    def start(self, on_failure: Callable[[], None] = lambda: None, on_ready: Callable[[], None] = lambda: None) -> None:
        """Follow the workers, which are already starting. `on_ready` is called when the first one is ready,
        `on_failure` when none can be started; both from any thread.
        """

        def fail(sentence: str) -> None:
            self.failure = sentence
            log.error("%s%s", self._log_prefix, sentence)
            on_failure()

        def begin(ready: Ready | HandlerReady) -> None:
            try:
                self._begin(ready)
            except Exception as error:  # nobody else would see it in this thread
                log.exception("%sthe server can't use the model that its worker has loaded", self._log_prefix)
                fail(f"the server can't use the model ({type(error).__name__}): the log has the traceback")
            else:
                on_ready()

        self.pool.set_callbacks(begin, fail)

    def stop(self) -> None:
        """Refuse new requests from now on."""
        self.stopping = True

    def close(self) -> None:
        """End the workers at once."""
        self.pool.stop()

    @property
    def workers(self) -> int:
        """The number of workers when all are alive."""
        return self.pool.size

    @property
    def description(self) -> str:
        """The workers in words, for the log."""
        return self.pool.description

    @property
    def waiting_seconds(self) -> float:
        """How long one more request is expected to wait."""
        return self.pool.waiting_seconds

    @property
    def work(self) -> Work:
        """The work that waits, and the work done since the start."""
        return replace(self.pool.work, requests=self.active)

    @property
    def closed(self) -> ServeError | None:
        """Why requests are refused (503); None if they are accepted. While a dead worker is replaced, requests are
        accepted and wait.
        """
        if self.failure is not None:
            return ServeError(Kind.NOT_READY, self.failure)
        if self.stopping:
            return ServeError(Kind.NOT_READY, STOPPING)
        if self._answering is None:
            return ServeError(Kind.NOT_READY, "the model is being loaded: ask again in a few seconds")
        return None

    def check_ready(self) -> None:
        """ServeError (503) with the reason unless a question can be answered now."""
        if closed := self.closed:
            raise closed
        if not self.pool.available:
            raise ServeError(Kind.NOT_READY, "all workers have died and are restarting: ask again in a few seconds")

    @property
    def answering(self) -> Answering:
        """The way to answer. To be used only if `closed` was None before; the server may be stopping by now."""
        assert self._answering is not None
        return self._answering

    @property
    def body_limits(self) -> BodyLimits:
        """The limits for bodies. While the model is loaded, bodies are only read to be refused."""
        return self._answering.body_limits if self._answering else for_handler(self.limits)

    @property
    def summary(self) -> dict[str, str]:
        """What /ping reports about a model that is ready."""
        ready = self.pool.first
        return {"precision": ready.info.precision} if isinstance(ready, Ready) else {"handler": "the model's own"}

    def _begin(self, ready: Ready | HandlerReady) -> None:
        if isinstance(ready, HandlerReady):
            self._set_answering(HandlerAnswering(self.pool, for_handler(self.limits)))
            if ready.model:
                self._say(f"model: {ready.model}")
                self._say(f"engine: {ready.engine}")
            self._say(f"handler: {ready.file} ({', '.join(ready.functions)})")
            self._say(f"ready: loaded in {ready.load_seconds:.1f} s")
            return
        tokenizer = PairTokenizer.from_json(ready.tokenizer)
        traits = ModelTraits(tokenizer, ready.info.max_length, ready.null_threshold, self.limits)
        accept = variables.ACCEPT.read(self._environ)
        answering = QuestionAnswering(self.pool, traits, split(accept)[0] if accept else None)
        answering.warm_up()
        self._set_answering(answering)
        self._say(f"model: {ready.model}")
        self._say(f"engine: {ready.info.description}")
        if ready.not_run:
            self._say(f"handler: the image's own; {ready.not_run}")
        warm_up = 1000 * ready.warm_up_seconds
        self._say(f"ready: loaded in {ready.load_seconds:.1f} s, warm-up question in {warm_up:.0f} ms")

    def _set_answering(self, answering: Answering) -> None:
        self.bodies.most = answering.body_limits.at_once
        self._answering = answering

    def _say(self, line: str) -> None:
        log.info("%s%s", self._log_prefix, line)
