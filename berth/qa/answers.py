"""Parses gold answers in all their layouts, including those for unanswerable questions, and checks their offsets."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MISSING = '"answers" is missing'
UNKNOWN = -1
"""The start of an answer without an offset in the data; only training data need one."""
_QUOTED = 60
"""The most characters of a text to quote in a message."""
_NEEDS = 'an answer needs a string "text" and a whole number "answer_start"'


@dataclass(frozen=True, slots=True)
class Answer:
    """A gold answer."""

    text: str
    start: int
    """Offset of its first character in the context, in characters (code points); UNKNOWN if the data have none."""


def answers_of(fields: Mapping[str, Any], *, offsets: bool) -> tuple[Answer, ...] | str:
    """The answers of a row (empty: unanswerable), or the text of an error.

    Layouts: `[{"text", "answer_start"}, …]` (official), `{"text": […], "answer_start": […]}` (flat rows), one text with
    one start, and bare texts. Unanswerable: `is_impossible`, null or anything empty, an empty text at any offset, and
    the offset -1 of a text that is not in the context. offsets: whether every answer needs an "answer_start".
    """
    # It overrides the answers, because some tools write plausible ones there. In tables it may be a number or a word.
    if str(fields.get("is_impossible")).lower() in ("true", "1", "1.0"):
        return ()
    value = fields.get("answers")
    if not value and value in (None, "", [], {}):
        return () if "answers" in fields else MISSING
    pairs = _pairs(value)
    if isinstance(pairs, str):
        return pairs
    answers = []
    for text, start in pairs:
        if text is None or (isinstance(text, str) and not text.strip()):
            continue
        at = UNKNOWN if start is None and not offsets else whole_number(start)
        if not isinstance(text, str) or at is None:
            return _NEEDS
        if start is not None and at < 0 and text not in str(fields.get("context")):
            continue
        answers.append(Answer(text, at))
    return tuple(answers)


def _pairs(value: object) -> Iterable[tuple[object, object]] | str:
    """Text and start of each answer."""
    if isinstance(value, list) and all(isinstance(answer, dict) for answer in value):
        return [(answer.get("text"), answer.get("answer_start")) for answer in value]
    if isinstance(value, list) and all(text is None or isinstance(text, str) for text in value):
        return [(text, None) for text in value]
    if isinstance(value, dict) and "text" in value:
        texts, starts = value["text"], value.get("answer_start")
        if not isinstance(texts, list):
            return [(texts, starts)]
        if starts is None:
            return [(text, None) for text in texts]
        if isinstance(starts, list) and len(texts) == len(starts):
            return list(zip(texts, starts, strict=True))
        if isinstance(starts, list):
            return f'"answers" has {len(texts)} text and {len(starts)} answer_start'
    return '"answers" has another shape'


def whole_number(value: object) -> int | None:
    """The value as an integer if it is one, or a float without fraction (as in tables); else None."""
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_misplaced(answer: Answer, context: str) -> bool:
    """Whether the text is empty or not at its offset in the context."""
    return not answer.text or answer.start < 0 or not context.startswith(answer.text, answer.start)


def misplacement(answer: Answer, context: str) -> str:
    """A misplaced answer and the text at its offset: `'Oslo', but 'slo ' is at 4 (the text is at 3)`."""
    actual = context[answer.start : answer.start + len(answer.text)] if answer.start >= 0 else ""
    length = f"the context has {len(context)} characters and nothing"
    at = context.find(answer.text)
    elsewhere = f"the text is at {at}" if at >= 0 else "the text is not in the context"
    return (
        f"{_quoted(answer.text)}, but {_quoted(actual) + ' is' if actual else length} at {answer.start} ({elsewhere})"
    )


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _QUOTED else f"{text[: _QUOTED - 1]}…")
