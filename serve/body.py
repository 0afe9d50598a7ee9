"""A request from its bytes to what the model needs, and from the logits to the answer's bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from berth.runtime.engines.engine import RowLogits, WindowTokens, row_of
from berth.serve.codecs import Codec, Records, text_of
from berth.serve.errors import ServeError
from berth.serve.json_text import encode
from berth.serve.question_answering import PreparedRequest, Reading, answers, prepare
from berth.serve.request import parse


@dataclass(frozen=True, slots=True)
class PreparedBody:
    """A body that is ready for the model: for each of its records a request, or why it is refused in its place."""

    records: Records
    requests: Sequence[PreparedRequest | ServeError]

    @property
    def rows(self) -> list[WindowTokens]:
        """What the model sees of all requests, one after the other."""
        return [row_of(window) for request in _good(self.requests) for window in request.windows]


def prepare_body(body: bytes, form: tuple[Codec, str], reading: Reading) -> PreparedBody:
    """A body of that media type and charset; ServeError if it can't be read (400), asks too much (413), or is one
    record that can't be answered.
    """
    codec, encoding = form
    records = codec.read(text_of(body, encoding, codec.media_type))
    requests: list[PreparedRequest | ServeError] = []
    tokens = 0
    for value in records.values:
        try:
            request = _prepare_record(value, reading)
        except ServeError as error:
            if not records.separate:
                raise
            # Without the traceback, which holds all that was made on the way.
            requests.append(ServeError(error.kind, error.message))
            continue
        tokens += max(request.tokens, reading.limits.window_tokens * len(request.windows))
        if tokens > reading.limits.body_tokens:
            raise reading.limits.too_many_records(len(requests), len(records.values))
        requests.append(request)
    return PreparedBody(records, requests)


def _prepare_record(value: Any, reading: Reading) -> PreparedRequest:
    if isinstance(value, ServeError):
        raise value
    return prepare(parse(value), reading)


def answer_body(prepared: PreparedBody, logits: Sequence[RowLogits], codec: Codec) -> bytes:
    """The answer's bytes; ServeError if it can't be given, of a single record also if that one can't."""
    outcomes: list[Any] = []
    begin = 0
    for request in prepared.requests:
        if isinstance(request, ServeError):
            outcomes.append(request)
            continue
        end = begin + len(request.windows)
        try:
            outcomes.append(answers(request, logits[begin:end]))
        except ServeError as error:
            if not prepared.records.separate:
                raise
            outcomes.append(error)
        begin = end
    return encode(codec.write(prepared.records, outcomes))


def _good(requests: Sequence[PreparedRequest | ServeError]) -> list[PreparedRequest]:
    return [each for each in requests if isinstance(each, PreparedRequest)]
