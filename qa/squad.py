"""Questions with their contexts and gold answers: read from files, checked, refused with a sentence that says where.

`read` takes SQuAD v1.1, v2.0 and anything of the same shape, in the layouts of files.py. `check_answers` sorts out
questions whose answers are not where the data says.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.qa.files import ROW, DataError, find, rows

__all__ = ["Answer", "DataError", "Example", "check_answers", "is_unicode", "misplaced", "read"]

MISPLACED_LIMIT = 0.10
"""Above this share of questions with answers beside their offsets, the offsets of the whole data set are wrong."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A gold answer."""

    text: str
    start: int
    """Offset of its first character in the context, in characters (code points)."""


@dataclass(frozen=True, slots=True)
class Example:
    """One question."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    """Any of them is right; none (v2.0) means that the context does not answer the question."""


def read(path: Path, version_2_with_negative: bool = False) -> list[Example]:
    """All questions of a data file or of the data files in a folder, in order.

    Raises DataError when a file is not SQuAD or is empty, when a question lacks its id, its text or its context, when
    an id comes twice (the metrics go by id), and when a question has no answer although `version_2_with_negative` is
    off. Whether answers stand at their offsets is left to `check_answers`.
    """
    examples: list[Example] = []
    seen: dict[str, str] = {}
    for file in find(path):
        before = len(examples)
        for place, fields in rows(file):
            example = _example(place, fields, version_2_with_negative)
            if example.id in seen:
                raise DataError(
                    f"{place}: the id {example.id!r} stands at {seen[example.id]} too; give every question its own id."
                )
            seen[example.id] = place
            examples.append(example)
        if len(examples) == before:
            raise DataError(f"{file} holds no question: pass a file with questions, or remove it from the folder.")
    return examples


def misplaced(example: Example) -> bool:
    """Whether an answer's text is not (or is nothing) at its offset in the context."""
    return any(
        not answer.text or answer.start < 0 or not example.context.startswith(answer.text, answer.start)
        for answer in example.answers
    )


def check_answers(examples: Sequence[Example], source: str = "the data") -> tuple[list[Example], list[str]]:
    """The questions to train on, and the ids of those skipped because an answer's text is not at its offset.

    A misplaced answer is skipped even if its text stands elsewhere in the context: which of several places is meant
    would be a guess, and training on a wrong guess goes unseen. Questions without answers are kept. Raises DataError,
    naming `source`, when more than 10 % of the questions would be skipped.
    """
    kept = [example for example in examples if not misplaced(example)]
    skipped = [example.id for example in examples if misplaced(example)]
    if len(skipped) > MISPLACED_LIMIT * len(examples):
        first = ", ".join(skipped[:3]) + (", …" if len(skipped) > 3 else "")
        raise DataError(
            f"In {source} {len(skipped)} of {len(examples)} questions ({first}) have an "
            "answer whose text is not at its answer_start: count answer_start in characters of the context as it "
            "stands in the file (not in bytes, and before any change of white space or line ends)."
        )
    return kept, skipped


def is_unicode(text: str) -> bool:
    """False for a text with half a surrogate pair, which JSON can spell ("\\ud83d") and no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _example(place: str, fields: Mapping[str, Any], version_2_with_negative: bool) -> Example:
    id_ = fields.get("id")
    if isinstance(id_, int) and not isinstance(id_, bool):
        id_ = str(id_)
    if not isinstance(id_, str) or not id_:
        raise DataError(f'{place}: the question has no "id"; give every question one, rows look like {ROW}.')
    question = _text(place, fields, "question")
    context = _text(place, fields, "context")
    impossible = fields.get("is_impossible") is True
    answers = _answers(place, fields, impossible)
    if impossible and answers:
        raise DataError(f'{place}: "is_impossible" is true, yet there are answers; correct one of the two.')
    if not answers and not version_2_with_negative:
        raise DataError(
            f"{place}: question {id_} has no answer; set version_2_with_negative to True if the data has questions "
            "that the context does not answer, otherwise remove the question."
        )
    return Example(id_, question, context, answers)


def _text(place: str, fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f'{place}: "{key}" is missing or empty; rows look like {ROW}.')
    _require_unicode(place, key, value)
    return value


def _require_unicode(place: str, key: str, value: str) -> None:
    if not is_unicode(value):
        raise DataError(f'{place}: "{key}" holds half a character (an unpaired surrogate); write the text as UTF-8.')


def _answers(place: str, fields: Mapping[str, Any], impossible: bool) -> tuple[Answer, ...]:
    """From `[{"text", "answer_start"}, …]` (official) or `{"text": […], "answer_start": […]}` (flat rows)."""
    value = fields.get("answers")
    if value is None and impossible:
        return ()
    pairs: Iterable[tuple[object, object]] | None = None
    if isinstance(value, list) and all(isinstance(answer, dict) for answer in value):
        pairs = [(answer.get("text"), answer.get("answer_start")) for answer in value]
    elif isinstance(value, dict):
        texts, starts = value.get("text"), value.get("answer_start")
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            pairs = list(zip(texts, starts, strict=True))
    if pairs is None:
        raise DataError(f'{place}: "answers" is missing or has another shape; rows look like {ROW}.')
    answers = []
    for text, start in pairs:
        if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
            raise DataError(f'{place}: an answer needs a string "text" and a whole number "answer_start".')
        answers.append(Answer(text, start))
    return tuple(answers)
