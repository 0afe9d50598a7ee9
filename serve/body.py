"""A request from its bytes to what the model needs, and from the logits to the answer's bytes."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from berth.runtime.engines.engine import RowLogits, WindowTokens, row_of
from berth.runtime.memory import trim_heap
from berth.serve.codecs import CSV, JSON, Codec, text_of
from berth.serve.csv_questions import CutFileError
from berth.serve.errors import Kind, ServeError
from berth.serve.json_text import encode
from berth.serve.limits import BodyTooLargeError, RequestLimits
from berth.serve.question_answering import PreparedQuestions, Reading, answers, prepare
from berth.serve.questions import parse
from berth.serve.records import Records

_UNTOLD = "this record can't be answered, as others before it: send it alone to read why"
_FULL = "the answers to the records before it fill the response: lower `top_k`, or send fewer records at once"


class Refusals:
    """The errors of a body's records. Equal ones are one object, and behind a limit of characters all are, for a bad
    record of two characters has an error of hundreds.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._known: dict[tuple[Kind, str], ServeError] = {}

    def of(self, error: ServeError) -> ServeError:
        """What stands in the record's place; without the traceback, which holds all that was made on the way."""
        self._left -= len(error.message)
        key = error.kind, error.message if self._left >= 0 else _UNTOLD
        return self._known.setdefault(key, ServeError(*key))


@dataclass(frozen=True, slots=True)
class PreparedBody:
    """A body that is ready for the model: for each of its records a request, or why it is refused in its place."""

    records: Records
    requests: Sequence[PreparedQuestions | ServeError]
    refusals: Refusals
    answer_characters: int
    """Of the texts of all answers, at most."""
    rows: Sequence[WindowTokens]
    """What the model sees of all requests, one after the other."""


def prepare_body(body: bytes, codec: Codec, reading: Reading) -> PreparedBody:
    """A body of that media type; ServeError if it can't be read (400), asks too much (413), or is one
    record that can't be answered.
    """
    limits = reading.limits
    # SageMaker sends each line of a file with SingleRecord, blank ones too.
    blank = limits.batch and codec.media_type != JSON
    records = codec.read(text_of(body, codec.media_type, blank=blank), limits)
    refusals = Refusals(limits.body_answer_characters)
    sums = _Sums(limits)
    requests: list[PreparedQuestions | ServeError] = []
    for value in records.values:
        try:
            requests.append(_prepare_record(value, reading, sums))
        except ServeError as error:
            if not records.separate or isinstance(error, BodyTooLargeError):
                raise
            requests.append(refusals.of(error))
    good = (each for each in requests if isinstance(each, PreparedQuestions))
    rows = [row_of(window) for request in good for window in request.windows]
    return PreparedBody(records, requests, refusals, limits.body_answer_characters, rows)


class _Sums:
    """What the records of a body ask together; BodyTooLargeError (413) before more is done than its limits allow."""

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._sums = {"characters": 0, "tokens": 0, "answers": 0}
        self._most = {
            "characters": (limits.body_characters, "characters of questions and contexts"),
            "tokens": (
                limits.body_tokens,
                f"tokens in its windows, of which each counts as {limits.window_tokens} at least",
            ),
            "answers": (limits.answers, "answers to give, `top_k` for each window"),
        }

    def add(self, name: str, amount: int) -> None:
        """`name`: what is counted."""
        self._sums[name] += amount
        most, what = self._most[name]
        if self._sums[name] > most:
            raise self._limits.body_has_too_many(what, most)


def _prepare_record(value: Any, reading: Reading, sums: _Sums) -> PreparedQuestions:
    if isinstance(value, ServeError):
        raise value
    limits = reading.limits
    request = parse(value)
    sums.add("characters", limits.check_texts(request.questions))  # which cost the tokenizer, whatever comes of them
    prepared = prepare(request, reading)
    windows = len(prepared.windows)
    sums.add("tokens", max(prepared.tokens, limits.window_tokens * windows))
    sums.add("answers", windows * request.parameters.top_k)
    return prepared


def answer_body(prepared: PreparedBody, logits: Sequence[RowLogits], codec: Codec) -> bytes:
    """The answer's bytes; ServeError if it can't be given, of a single record also if that one can't."""
    outcomes: list[Any] = []
    begin, left = 0, prepared.answer_characters
    for request in prepared.requests:
        if isinstance(request, ServeError):
            outcomes.append(request)
            continue
        end = begin + len(request.windows)
        try:
            outcome = answers(request, logits[begin:end])
            left -= _characters(outcome)
            if left < 0:
                raise ServeError(Kind.TOO_LARGE, _FULL)
            outcomes.append(outcome)
        except ServeError as error:
            if not prepared.records.separate:
                raise
            outcomes.append(prepared.refusals.of(error))
        begin = end
    return encode(codec.write(prepared.records, outcomes))


def _characters(outcome: Any) -> int:
    """Of the texts of all answers."""
    return sum(map(_characters, outcome)) if isinstance(outcome, list) else len(outcome["answer"])


_LARGE = 65_536
"""Bytes of a body from which on the memory that was needed to read it is given back to the system."""


class Reader:
    """Reads requests in order of arrival."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "reader")
        self._cut_file: CutFileError | None = None

    async def read(self, body: bytes, codec: Codec, reading: Reading) -> PreparedBody:
        """What the model needs to answer; ServeError if the request can't be read, or asks too much."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read, body, codec, reading)

    def _read(self, body: bytes, codec: Codec, reading: Reading) -> PreparedBody:
        refusal: ServeError | None = None
        prepared: PreparedBody | None = None
        try:
            prepared = prepare_body(body, codec, reading)
        except ServeError as error:
            # Else the traceback holds all that was made on the way, until the garbage is collected.
            refusal = error.with_traceback(None)
            refusal.__cause__ = refusal.__context__ = None
        if codec.media_type == CSV:
            refusal = self._refuse_parts(prepared, refusal)
        if len(body) > _LARGE:
            trim_heap()
        if refusal is not None:
            raise refusal
        assert prepared is not None
        return prepared

    def _refuse_parts(self, prepared: PreparedBody | None, refusal: ServeError | None) -> ServeError | None:
        """The refusal of a body, also because of one before it: in local mode SDKs go on with a file of which a part
        was refused. A body with a row of names begins another file.
        """
        if isinstance(refusal, CutFileError):
            self._cut_file = refusal if refusal.hides else None
        elif prepared is not None and prepared.records.header:
            self._cut_file = None
        if refusal is None and self._cut_file is not None:
            return self._cut_file.of_a_later_body()
        return refusal
