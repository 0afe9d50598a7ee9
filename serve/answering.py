"""Who answers a request's body: our own handler of questions, or a user's in the workers."""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from starlette.responses import Response

from berth.runtime.engines.engine import RowLogits, WindowTokens
from berth.serve.admission import Share
from berth.serve.body import answer_body, prepare_body
from berth.serve.body_limits import BodyLimits, for_questions
from berth.serve.codecs import answer_codec, request_codec
from berth.serve.figures import StageTimes
from berth.serve.json_text import dump, encode
from berth.serve.question_answering import WARM_UP, Reading
from berth.serve.reader import Reader
from berth.serve.responses import Refusal
from berth.serve.workers.messages import HandlerAnswer, HandlerRequest
from berth.serve.workers.pool import WorkerPool

ATTRIBUTES = "x-amzn-sagemaker-custom-attributes"
_QUEUED_HERE = 256
"""Windows that the event loop queues itself; ten thousands, as of a batch transform, would keep it for a while."""


@dataclass(frozen=True, slots=True)
class Intake:
    """What all requests share on their way in. `unread`: bytes of bodies; `accept`: the type of an answer that nobody
    asked for in another.
    """

    reader: Reader
    unread: Share
    accept: str | None


class Answering(Protocol):
    """What makes an answer of a body and its headers, whose names are in lower case."""

    @property
    def body_limits(self) -> BodyLimits:
        """Of the bodies that it takes."""
        ...

    async def respond(self, body: bytes, headers: Mapping[str, str], intake: Intake, times: StageTimes) -> Response:
        """The response; ServeError if there is none. `times` gets the stages."""
        ...


@dataclass(frozen=True, slots=True)
class QuestionAnswering:
    """Ours: the front makes windows and answers, the workers compute."""

    pool: WorkerPool
    reading: Reading

    @property
    def body_limits(self) -> BodyLimits:
        return for_questions(self.reading.limits)

    def warm_up(self) -> None:
        """Take a question through what the front does with it, so that no client waits for what happens once."""
        form = request_codec(None)
        prepared = prepare_body(encode(dump(WARM_UP._asdict())), form, self.reading)
        answer_body(
            prepared, [RowLogits(*np.zeros((2, len(row.input_ids)), np.float32)) for row in prepared.rows], form[0]
        )

    async def respond(self, body: bytes, headers: Mapping[str, str], intake: Intake, times: StageTimes) -> Response:
        form = request_codec(headers.get("content-type"))
        # Before the model works for an answer that can't be sent.
        codec = answer_codec(headers.get("accept"), form[0], intake.accept)
        with intake.unread.hold(len(body)), times.measure("read"):
            prepared = await intake.reader.read(body, form, self.reading)
        logits = await self._compute(prepared.rows, times) if prepared.rows else []
        with times.measure("answer"):
            # Not by anyio, whose backend is an import of 80 ms in the first request.
            answer = await asyncio.to_thread(answer_body, prepared, logits, codec)
        return Response(answer, media_type=codec.media_type, headers=_attributes(headers))

    async def _compute(self, rows: Sequence[WindowTokens], times: StageTimes) -> list[RowLogits]:
        """What the workers make of the windows; they are dropped if nobody waits for it any more."""
        if len(rows) <= _QUEUED_HERE:
            return await asyncio.wrap_future(self.pool.submit(rows, times=times))
        submitting = asyncio.create_task(asyncio.to_thread(partial(self.pool.submit, rows, times=times)))
        try:
            return await asyncio.wrap_future(await asyncio.shield(submitting))
        except asyncio.CancelledError:
            submitting.add_done_callback(_drop)  # at once, if it is done
            raise


def _drop(submitting: "asyncio.Task[Future[list[RowLogits]]]") -> None:
    if submitting.exception() is None:
        submitting.result().cancel()


@dataclass(frozen=True, slots=True)
class HandlerAnswering:
    """A user's: a worker does it all."""

    pool: WorkerPool
    body_limits: BodyLimits

    async def respond(self, body: bytes, headers: Mapping[str, str], intake: Intake, times: StageTimes) -> Response:
        # A handler may have begun what must not be done twice.
        future = self.pool.submit([HandlerRequest(body, dict(headers))], repeatable=False, times=times)
        del body  # the pool lets it go once a worker has it
        answer: HandlerAnswer
        (answer,) = await asyncio.wrap_future(future)
        its_headers = {**_attributes(headers), **answer.headers}
        if answer.error_type:
            return Refusal(answer.status, answer.body, its_headers, answer.error_type)
        return Response(answer.body, answer.status, its_headers)


def _attributes(headers: Mapping[str, str]) -> dict[str, str]:
    """What the caller gave along for itself, or for a handler that changes it, and SageMaker hands back to it."""
    return {ATTRIBUTES: headers[ATTRIBUTES]} if ATTRIBUTES in headers else {}
