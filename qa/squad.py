"""Questions with their contexts and gold answers: read from files, checked, refused with a sentence that says where.

`read` takes SQuAD v1.1, v2.0 and anything of the same shape, in the layouts of files.py. `check_answers` sorts out
questions whose answers are not where the data says.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from berth.qa.faults import SHOWN, DataError, Fault, Faults, Where, at, counted
from berth.qa.files import NOT_JSON, Row, find, like, rows

__all__ = ["Answer", "DataError", "Example", "check_answers", "is_unicode", "misplaced", "read", "skipped_note"]

_NO_ANSWER = (
    "the question has no answer",
    "set version_2_with_negative to True if the data has questions that the context does not answer, otherwise remove "
    "the question",
)
_NO_TEXT = ("an answer has no text", "write the text of every answer, or remove the question")
_MISPLACED = (
    "an answer's text is not at its answer_start",
    "count answer_start in characters of the context as it stands in the file (not in bytes, and before any change of "
    "white space or line ends)",
)
MISPLACED_LIMIT = 0.10
"""Above this share of questions whose answers are not at their offsets, the offsets of the whole data set are wrong."""


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
    where: Where | None = field(default=None, compare=False, repr=False)
    """Where it was read, for messages."""


def read(path: Path, *, version_2_with_negative: bool = False, offsets: bool = False) -> list[Example]:
    """All questions of a data file or of the data files in a folder, in order.

    Raises DataError when a file is not SQuAD or is empty; and one that lists every question that lacks its id, its text
    or its context, whose id comes twice (the metrics go by id), or that has no answer although
    `version_2_with_negative` is off. Whether answers stand at their offsets is left to `check_answers`, but with
    `offsets` those that do not are in that list, too.
    """
    examples: list[Example] = []
    seen: dict[str, Where] = {}
    faults = Faults()
    for file in find(path):
        before, faulty = len(examples), len(faults.all)
        parsed = False
        for row in rows(file):
            parsed = parsed or isinstance(row, Row) or not row.what.startswith(NOT_JSON)
            found = _example(row, version_2_with_negative=version_2_with_negative) if isinstance(row, Row) else [row]
            if isinstance(found, Example) and (first := seen.get(found.id)) and found.where:
                there = first.place if first.file == file else f"{first.file}, {first.place}"
                what = f"the id {found.id!r} stands at {there} too"
                found = [Fault(found.where, "", what, "give every question its own id")]
            if isinstance(found, list):
                faults.all += found
            elif found.where:
                seen[found.id] = found.where
                examples.append(found)
        if len(faults.all) > faulty and not parsed:  # no file of lines: that each of them is none says no more
            faults.all = faults.all[faulty : faulty + 1]
            raise DataError(faults.sentence())
        if len(examples) == before and len(faults.all) == faulty:
            raise DataError(f"{file} holds no question: pass a file with questions, or remove it from the folder.")
    if faults.all:
        faults.all += [_misplaced_fault(example) for example in examples if offsets and misplaced(example)]
        raise DataError(faults.sentence())
    return examples


def misplaced(example: Example) -> bool:
    """Whether an answer's text is not (or is nothing) at its offset in the context."""
    return any(
        not answer.text or answer.start < 0 or not example.context.startswith(answer.text, answer.start)
        for answer in example.answers
    )


def check_answers(examples: Sequence[Example], source: str = "the data") -> tuple[list[Example], list[Example]]:
    """The questions to train on, and those skipped because an answer's text is not at its offset.

    A misplaced answer is skipped even if its text stands elsewhere in the context: which of several places is meant
    would be a guess, and training on a wrong guess goes unseen. Questions without answers are kept. Raises DataError,
    naming `source`, when more than 10 % of the questions would be skipped.
    """
    kept = [example for example in examples if not misplaced(example)]
    skipped = [example for example in examples if misplaced(example)]
    if len(skipped) > MISPLACED_LIMIT * len(examples):
        raise DataError(
            f"In {source} {len(skipped)} of {counted(len(examples), 'question')} "
            f"{'has' if len(skipped) == 1 else 'have'} an answer whose text is not at its answer_start "
            f"({_places(skipped)}): {_MISPLACED[1]}."
        )
    return kept, skipped


def skipped_note(skipped: Sequence[Example]) -> str:
    """`1 question skipped, whose answer is not at its answer_start: train.jsonl, line 8 (id q8)`."""
    count = counted(len(skipped), "question")
    return f"{count} skipped, whose answer is not at its answer_start: {_places(skipped)}"


def _places(examples: Sequence[Example]) -> str:
    """The places of up to ten questions, by file, and the number of the rest."""
    files: dict[str, list[Fault]] = {}
    for fault in map(_misplaced_fault, examples[:SHOWN]):
        files.setdefault(str(fault.where.file), []).append(fault)
    places = [f"{file}, {at(faults)}" if file != "." else at(faults) for file, faults in files.items()]
    return "; ".join([*places, *([f"and {len(examples) - SHOWN} more"] if len(examples) > SHOWN else [])])


def _misplaced_fault(example: Example) -> Fault:
    empty = any(not answer.text for answer in example.answers)
    return Fault(example.where or Where(Path(), ""), example.id, *(_NO_TEXT if empty else _MISPLACED))


def is_unicode(text: str) -> bool:
    """False for a text with half a surrogate pair, which JSON can spell ("\\ud83d") and no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _example(row: Row, *, version_2_with_negative: bool) -> Example | list[Fault]:
    fields = row.fields
    id_ = fields.get("id")
    if isinstance(id_, int) and not isinstance(id_, bool):
        id_ = str(id_)
    faults: list[tuple[str, str]] = []
    if not isinstance(id_, str) or not id_:
        id_ = ""
        faults.append(('the question has no "id"', like(row.where)))
    faults += [wrong for key in ("question", "context") if (wrong := _text_fault(row, key))]
    impossible = fields.get("is_impossible") is True
    answers = _answers(fields, impossible=impossible)
    if isinstance(answers, str):
        faults.append((answers, like(row.where)))
    elif impossible and answers:
        faults.append(('"is_impossible" is true, yet there are answers', "correct one of the two"))
    elif not answers and not version_2_with_negative:
        faults.append(_NO_ANSWER)
    if faults or isinstance(answers, str):
        return [Fault(row.where, id_, *fault) for fault in faults]
    return Example(id_, fields["question"], fields["context"], answers, row.where)


def _text_fault(row: Row, key: str) -> tuple[str, str] | None:
    value = row.fields.get(key)
    if not isinstance(value, str) or not value.strip():
        return f'"{key}" is missing or empty', like(row.where)
    if not is_unicode(value):
        return f'"{key}" holds half a character (an unpaired surrogate)', "write the text as UTF-8"
    return None


def _answers(fields: Mapping[str, Any], *, impossible: bool) -> tuple[Answer, ...] | str:
    """From `[{"text", "answer_start"}, …]` (official) or `{"text": […], "answer_start": […]}` (flat rows); a text that
    says what is wrong.
    """
    value = fields.get("answers")
    if value is None and impossible:
        return ()
    pairs: Iterable[tuple[object, object]] | None = None
    if isinstance(value, list) and all(isinstance(answer, dict) for answer in value):
        pairs = [(answer.get("text"), answer.get("answer_start")) for answer in value]
    elif isinstance(value, dict):
        texts, starts = value.get("text"), value.get("answer_start")
        if isinstance(texts, list) and isinstance(starts, list):
            if len(texts) != len(starts):
                return f'"answers" has {counted(len(texts), "text")} and {counted(len(starts), "answer_start")}'
            pairs = list(zip(texts, starts, strict=True))
    if value is None:
        return '"answers" is missing'
    if pairs is None:
        return '"answers" has another shape'
    answers = []
    for text, start in pairs:
        if not isinstance(text, str) or not isinstance(start, int) or isinstance(start, bool):
            return 'an answer needs a string "text" and a whole number "answer_start"'
        answers.append(Answer(text, start))
    return tuple(answers)
