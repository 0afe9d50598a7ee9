"""The two ways to answer a body: question answering with our model, or a user's handler in the workers.

Both have `body_limits` for the bodies that they accept, and `respond`: it turns a body and its headers, whose names are
in lower case, into a response or ServeError, and writes the time of each stage to `times`.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from starlette.responses import Response

from berth.runtime.engines.engine import RowLogits
from berth.serve.errors import Kind, ServeError
from berth.serve.limits import BodyLimits, for_questions
from berth.serve.observing.figures import StageTimes
from berth.serve.questions.body import Reader, answer_body, prepare_body
from berth.serve.questions.codecs import answer_codec, request_codec
from berth.serve.questions.json_text import dump, encode
from berth.serve.questions.question_answering import WARM_UP, ModelTraits
from berth.serve.responses import Refusal
from berth.serve.user_code.context import HandlerAnswer, HandlerInput
from berth.serve.workers.pool import WorkerPool

ATTRIBUTES = "x-amzn-sagemaker-custom-attributes"


@dataclass(frozen=True, slots=True)
class QuestionAnswering:
    """Our model: the server makes windows and answers, the workers compute logits. `accept`: default media type of
    answers.
    """

    pool: WorkerPool
    traits: ModelTraits
    accept: str | None = None

    @property
    def body_limits(self) -> BodyLimits:
        return for_questions(self.traits.limits)

    def warm_up(self) -> None:
        """Prepare and answer one question without a worker, so that no client waits for what only a first one costs."""
        codec = request_codec(None)
        prepared = prepare_body(encode(dump(WARM_UP._asdict())), codec, self.traits)
        answer_body(
            prepared, [RowLogits(*np.zeros((2, len(row.input_ids)), np.float32)) for row in prepared.rows], codec
        )

    async def respond(self, body: bytes, headers: Mapping[str, str], reader: Reader, times: StageTimes) -> Response:
        _refuse_encoding(headers.get("content-encoding", ""))
        requested = request_codec(headers.get("content-type"))
        # Checked first: the model should not work for an answer that can't be sent.
        codec = answer_codec(headers.get("accept"), requested, self.accept)
        with times.measure("read"):
            prepared = await reader.read(body, requested, self.traits)
        rows = prepared.rows
        logits = await asyncio.wrap_future(self.pool.submit(rows, times=times)) if rows else []
        with times.measure("answer"):
            # anyio is not used, because importing its backend would take 80 ms of the first request.
            answer = await asyncio.to_thread(answer_body, prepared, logits, codec)
        return Response(answer, media_type=codec.media_type, headers=_attributes(headers))


def _refuse_encoding(name: str) -> None:
    """ServeError (415) for a Content-Encoding other than `identity`."""
    if name.strip().lower() not in ("", "identity"):
        sentence = f"Content-Encoding `{name[:80]}` can't be read: send the body without it"
        raise ServeError(Kind.UNSUPPORTED_MEDIA_TYPE, sentence)


@dataclass(frozen=True, slots=True)
class HandlerAnswering:
    """A user's handler: a worker makes the whole answer."""

    pool: WorkerPool
    body_limits: BodyLimits

    async def respond(self, body: bytes, headers: Mapping[str, str], reader: Reader, times: StageTimes) -> Response:
        # Not repeatable: a handler may have side effects that must not happen twice.
        future = self.pool.submit([HandlerInput(body, dict(headers))], repeatable=False, times=times)
        del body  # the pool drops its reference once a worker has it
        answer: HandlerAnswer
        (answer,) = await asyncio.wrap_future(future)
        response_headers = {**_attributes(headers), **answer.headers}
        if answer.error_type:
            return Refusal(answer.status, answer.body, response_headers, answer.error_type)
        return Response(answer.body, answer.status, response_headers)


Answering = QuestionAnswering | HandlerAnswering


def _attributes(headers: Mapping[str, str]) -> dict[str, str]:
    """The custom attributes of a request, which SageMaker returns to the caller; a handler may change them."""
    return {ATTRIBUTES: headers[ATTRIBUTES]} if ATTRIBUTES in headers else {}
