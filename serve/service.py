"""The service behind the routes: its workers, and what the server must know of their model to read a request.

The state goes loading → ready, or loading → failed and no further; workers that can't be had any more take it from
ready to failed, and a stop from any of them to stopping, in which what was accepted is still answered.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from berth.qa.tokenizer import PairTokenizer
from berth.serve.admission import Share
from berth.serve.answering import Answering, HandlerAnswering, QuestionAnswering
from berth.serve.errors import Kind, ServeError
from berth.serve.figures import Load
from berth.serve.limits import BodyLimits, RequestLimits, for_handler
from berth.serve.question_answering import Reading
from berth.serve.settings import idle_with_handler, idle_with_questions
from berth.serve.workers.messages import HandlerReady, Ready
from berth.serve.workers.pool import WorkerPool

log = logging.getLogger(__name__)

STOPPING = "the server stops: send the request to another"


class Service:
    """Workers with one model."""

    def __init__(
        self, pool: WorkerPool, limits: RequestLimits, name: str = "", environ: Mapping[str, str] = os.environ
    ) -> None:
        """`name` tells the model from others of this server, in its log lines; `environ` is the server's."""
        self.pool = pool
        self.limits = limits
        self.failure: str | None = None
        self.stopping = False
        self.active = 0
        """Requests that are being read or answered; the event loop's to count."""
        self.bodies = Share(0, "bytes of requests are being received", lambda: self.waiting_seconds)
        """Their bytes; how many there may be is known when a worker is ready."""
        self._environ = environ
        self._said_of = f"{name}: " if name else ""
        self._answering: Answering | None = None  # once a worker is ready

    def start(self, on_failure: Callable[[], None] = lambda: None, on_ready: Callable[[], None] = lambda: None) -> None:
        """Hear of the workers, which are on their way; `on_ready` is called when the first is ready, `on_failure` when
        none can be had, both from any thread.
        """

        def fail(sentence: str) -> None:
            self.failure = sentence
            log.error("%s%s", self._said_of, sentence)
            on_failure()

        def begin(ready: Ready | HandlerReady) -> None:
            try:
                self._begin(ready)
            except Exception as error:  # in a thread in which nobody else would see it
                log.exception("%sthe server can't use what its worker has loaded", self._said_of)
                fail(f"the server can't use the model ({type(error).__name__}): the log has the traceback")
            else:
                on_ready()

        self.pool.tell(begin, fail)

    def stop(self) -> None:
        """Take nothing more from now on."""
        self.stopping = True

    def close(self) -> None:
        """End the workers, whatever they do."""
        self.pool.stop()

    @property
    def workers(self) -> int:
        """How many there are when all are well."""
        return self.pool.size

    @property
    def description(self) -> str:
        """Of the workers, for the log."""
        return self.pool.description

    @property
    def waiting_seconds(self) -> float:
        """How long one more request would wait, as far as can be told."""
        return self.pool.waiting_seconds

    def load_now(self) -> Load:
        """What waits, and what has been computed."""
        return replace(self.pool.load_now(), requests=self.active)

    @property
    def closed(self) -> ServeError | None:
        """Why no request is taken (503); None if requests are taken. While a worker that has died is replaced, they are
        taken, and wait.
        """
        if self.failure is not None:
            return ServeError(Kind.NOT_READY, self.failure)
        if self.stopping:
            return ServeError(Kind.NOT_READY, STOPPING)
        if self._answering is None:
            return ServeError(Kind.NOT_READY, "the model is being loaded: ask again in a few seconds")
        return None

    def check_ready(self) -> None:
        """Pass if a question can be answered now; ServeError (503) with the reason otherwise."""
        if closed := self.closed:
            raise closed
        if not self.pool.available:
            raise ServeError(Kind.NOT_READY, "the workers have died and are started again: ask again in a few seconds")

    @property
    def answering(self) -> Answering:
        """What answers; the service was not `closed` before, though the server may stop by now."""
        assert self._answering is not None
        return self._answering

    @property
    def body_limits(self) -> BodyLimits:
        """Of whoever answers; while nobody does, bodies are read to be refused."""
        return self._answering.body_limits if self._answering else for_handler(self.limits)

    @property
    def summary(self) -> dict[str, str]:
        """What /ping says of a model that is ready."""
        ready = self.pool.first
        return {"precision": ready.info.precision} if isinstance(ready, Ready) else {"handler": "the model's own"}

    def _begin(self, ready: Ready | HandlerReady) -> None:
        for line in ready.unused:
            log.warning("%s%s", self._said_of, line)
        if isinstance(ready, HandlerReady):
            self._answer_by(HandlerAnswering(self.pool, for_handler(self.limits)))
            idle = [] if ready.uses_our_model else idle_with_handler(self._environ)
            if ready.model:
                self._say(f"model: {ready.model}")
                self._say(f"engine: {ready.engine}")
            self._say(f"handler: {ready.file} ({', '.join(ready.functions)})")
            self._say_idle(idle, "with this model's own code")
            self._say(f"ready: loaded in {ready.load_seconds:.1f} s")
            return
        tokenizer = PairTokenizer.from_json(ready.tokenizer)
        reading = Reading(tokenizer, ready.info.max_length, ready.null_threshold, self.limits)
        answering = QuestionAnswering(self.pool, reading)
        answering.warm_up()
        self._answer_by(answering)
        self._say(f"model: {ready.model}")
        self._say(f"engine: {ready.info.description}")
        if ready.not_run:
            self._say(f"handler: the image's own; {ready.not_run}")
        self._say_idle(idle_with_questions(self.limits, self._environ), "on this model")
        warm_up = 1000 * ready.warm_up_seconds
        self._say(f"ready: loaded in {ready.load_seconds:.1f} s, warm-up question in {warm_up:.0f} ms")

    def _answer_by(self, answering: Answering) -> None:
        self.bodies.most = answering.body_limits.at_once
        self._answering = answering

    def _say_idle(self, names: Sequence[str], where: str) -> None:
        if names:
            log.warning("%sset, and without effect %s: %s", self._said_of, where, ", ".join(names))

    def _say(self, line: str) -> None:
        log.info("%s%s", self._said_of, line)
