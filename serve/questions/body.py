"""Turns a body's bytes into rows for the model, and logits into the response's bytes."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from berth.runtime.engines.engine import RowLogits, WindowTokens, row_of
from berth.runtime.memory import trim_heap
from berth.serve.admission import Share
from berth.serve.errors import Kind, ServeError
from berth.serve.limits import BodyTooLargeError, RequestLimits
from berth.serve.questions.codecs import CSV, JSON, Codec, text_of
from berth.serve.questions.csv_questions import CutFileError
from berth.serve.questions.fields import parse
from berth.serve.questions.json_text import encode
from berth.serve.questions.question_answering import ModelTraits, PreparedQuestions, answers, prepare
from berth.serve.questions.records import Records

_NO_REASON = "this record can't be answered, like others before it: send it alone to read why"
_FULL = "the answers to the records before it fill the response: lower `top_k`, or send fewer records at once"


class Refusals:
    """The errors of a body's records, limited to `most` characters, because a bad record of two characters has an error
    of hundreds. Equal errors share one object; over the limit, all errors of a kind get the same short sentence.
    """

    def __init__(self, most: int) -> None:
        self._left = most
        self._known: dict[tuple[Kind, str], ServeError] = {}

    def of(self, error: ServeError) -> ServeError:
        """The error in place of the record's answer; without a traceback, which would keep intermediate data alive."""
        self._left -= len(error.message)
        key = error.kind, error.message if self._left >= 0 else _NO_REASON
        return self._known.setdefault(key, ServeError(*key))


@dataclass(frozen=True, slots=True)
class PreparedBody:
    """A body that is ready for the model: each of its records as questions with windows, or its error."""

    records: Records
    outcomes: Sequence[PreparedQuestions | ServeError]
    refusals: Refusals
    answer_characters: int
    """The most characters of the texts of all answers."""
    rows: Sequence[WindowTokens]
    """The windows of all questions, in order."""


def prepare_body(body: bytes, codec: Codec, traits: ModelTraits) -> PreparedBody:
    """Decode and prepare a body of `codec`'s media type.

    ServeError if the body can't be read (400) or asks too much (413), or if its only record can't be answered.
    """
    limits = traits.limits
    # With SingleRecord SageMaker sends every line of a file as a body, blank lines too.
    blank = limits.batch and codec.media_type != JSON
    records = codec.read(text_of(body, codec.media_type, blank=blank), limits)
    refusals = Refusals(limits.body_answer_characters)
    sums = _Sums(limits)
    outcomes: list[PreparedQuestions | ServeError] = []
    for value in records.values:
        try:
            outcomes.append(_prepare_record(value, traits, sums))
        except ServeError as error:
            if not records.separate or isinstance(error, BodyTooLargeError):
                raise
            outcomes.append(refusals.of(error))
    good = (each for each in outcomes if isinstance(each, PreparedQuestions))
    rows = [row_of(window) for prepared in good for window in prepared.windows]
    return PreparedBody(records, outcomes, refusals, limits.body_answer_characters, rows)


class _Sums:
    """Totals over the records of a body; BodyTooLargeError (413) as soon as one exceeds its limit."""

    def __init__(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._sums = {"characters": 0, "tokens": 0, "answers": 0}
        self._most = {
            "characters": (limits.body_characters, "characters of questions and contexts"),
            "tokens": (
                limits.body_tokens,
                f"tokens in its windows, each of which counts as {limits.window_tokens} at least",
            ),
            "answers": (limits.answers, "answers to give, `top_k` for each window"),
        }

    def add(self, name: str, amount: int) -> None:
        """`name`: `characters`, `tokens` or `answers`."""
        self._sums[name] += amount
        most, what = self._most[name]
        if self._sums[name] > most:
            raise self._limits.body_has_too_many(what, most)


def _prepare_record(value: Any, traits: ModelTraits, sums: _Sums) -> PreparedQuestions:
    if isinstance(value, ServeError):
        raise value
    limits = traits.limits
    checked = parse(value)
    sums.add("characters", limits.check_texts(checked.questions))  # first: tokenising costs time, even of a bad record
    prepared = prepare(checked, traits)
    windows = len(prepared.windows)
    sums.add("tokens", max(prepared.tokens, limits.window_tokens * windows))
    sums.add("answers", windows * checked.parameters.top_k)
    return prepared


def answer_body(prepared: PreparedBody, logits: Sequence[RowLogits], codec: Codec) -> bytes:
    """The response's bytes; ServeError if `codec` can't write them, or if the body's only record can't be answered."""
    outcomes: list[Any] = []
    begin, left = 0, prepared.answer_characters
    for questions in prepared.outcomes:
        if isinstance(questions, ServeError):
            outcomes.append(questions)
            continue
        end = begin + len(questions.windows)
        try:
            outcome = answers(questions, logits[begin:end])
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
    """Characters of the texts of all answers of a record."""
    return sum(map(_characters, outcome)) if isinstance(outcome, list) else len(outcome["answer"])


_LARGE = 65_536
"""After reading a body of more bytes, free memory is returned to the system."""


class Reader:
    """Decodes and prepares bodies in one thread, in order of arrival. `unread`: the share of the bodies that wait."""

    def __init__(self, unread: Share) -> None:
        self._unread = unread
        self._thread = ThreadPoolExecutor(1, "reader")
        self._cut_file: CutFileError | None = None

    async def read(self, body: bytes, codec: Codec, traits: ModelTraits) -> PreparedBody:
        """See `prepare_body`; ServeError (503) if too many bodies wait."""
        with self._unread.hold(len(body)):
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._read, body, codec, traits)

    def _read(self, body: bytes, codec: Codec, traits: ModelTraits) -> PreparedBody:
        refusal: ServeError | None = None
        prepared: PreparedBody | None = None
        try:
            prepared = prepare_body(body, codec, traits)
        except ServeError as error:
            # Otherwise the traceback keeps all intermediate data alive until the next garbage collection.
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
        """The error of a CSV body, or of an earlier body of the same file: in local mode SDKs send the rest of a file
        after a part was refused. A body with a row of column names begins another file.
        """
        if isinstance(refusal, CutFileError):
            self._cut_file = refusal
        elif prepared is not None and prepared.records.header:
            self._cut_file = None
        if refusal is None and self._cut_file is not None:
            return self._cut_file.of_a_later_body()
        return refusal
