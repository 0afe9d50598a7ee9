"""Reads and checks questions with their contexts and gold answers; errors name the place in the file.

`read` and QuestionReader accept SQuAD v1.1, v2.0 and data of the same form, in the layouts of files.py. AnswerCheck
skips questions whose answers are not at their offsets. QuestionReader and AnswerCheck process the questions one by one,
so the data may be larger than memory.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from berth.contract.words import counted
from berth.qa.answers import (
    MISSING,
    Answer,
    answers_of,
    is_misplaced,
    misplacement,
    whole_number,
)
from berth.qa.faults import SHOWN, DataError, Fault, Faults, Where, at
from berth.qa.files import NOT_JSON, Row, find, like, rows

__all__ = ["Answer", "AnswerCheck", "DataError", "Example", "QuestionReader", "is_unicode", "misplaced", "read"]

_NO_ANSWER = (
    "the question has no answer",
    "set version_2_with_negative to True if the data has questions that the context does not answer, otherwise remove "
    "the question",
)
_ID = "give every question a text or a whole number as its id, or leave all ids out"
_COUNT_CHARACTERS = (
    "count answer_start in characters of the context as it is in the file (not in bytes, and before any change of "
    "white space or line ends)"
)
_KINDS = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}
MISPLACED_LIMIT = 0.10
"""Above this share of questions with misplaced answers, the data set is rejected."""


@dataclass(frozen=True, slots=True)
class Example:
    """One question."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    """Any of them is right; empty (v2.0) means that the context does not answer the question."""
    where: Where | None = field(default=None, compare=False, repr=False)
    """Its place in the data, for messages."""


def read(path: Path, *, version_2_with_negative: bool = False, offsets: bool = False) -> list[Example]:
    """All questions of a data file, or of the data files in a folder, checked."""
    reader = QuestionReader(path, version_2_with_negative=version_2_with_negative, offsets=offsets)
    examples = list(reader)
    reader.check()
    return examples


class QuestionReader:
    """Iterates over the questions of a data file, or of the data files in a folder, in order.

    Iterate once, then call `check`. A file that is empty or not SQuAD raises DataError while it is read.
    content: the rows of a data set that is not in files, such as one of the hub; `path` is then its name.
    offsets: every answer needs an offset, as for training. `AnswerCheck` checks whether the offsets are right; here,
    wrong ones are only reported together with other faults. answers: false if the questions need no answers, as for
    predictions; then `scored` tells whether they have them.
    """

    def __init__(
        self,
        path: Path,
        content: Iterable[Mapping[str, Any]] | None = None,
        *,
        version_2_with_negative: bool = False,
        offsets: bool = False,
        answers: bool = True,
    ) -> None:
        self.path = path
        self.content = content
        self.answers = answers
        self.version_2_with_negative = version_2_with_negative
        self.offsets = offsets
        self._faults = Faults()
        self._ids: set[int] = set()  # hashes, because the ids of a large data set may not fit into memory
        self.counts: Counter[Path] = Counter()
        """Valid questions per file, of the files read so far."""
        self._unscored = 0
        self._unanswerable = 0
        self._made = 0
        self._first_made = ""

    def __iter__(self) -> Iterator[Example]:
        """Yields questions up to the first fault; the rest is only searched for more faults."""
        for example in self._examples():
            self.counts[example.where.file if example.where else self.path] += 1
            if not self._faults:
                yield example

    def check(self) -> None:
        """Raises DataError with the faults of the questions read so far.

        Faults: a missing text or context, an invalid or repeated id (metrics use ids), and a missing answer if
        `version_2_with_negative` is off.
        """
        if self._faults:
            raise DataError(self._faults.sentence())
        if self._unscored and self.scored:
            raise DataError(
                f'{self.path} has {counted(self._unscored, "question")} without "answers" and others with them: give '
                "them to all, to have exact match and F1, or to none."
            )

    @property
    def scored(self) -> bool:
        """Whether questions read so far have answers, so that predictions can be scored."""
        return self._unscored < self.counts.total()

    def notes(self) -> list[str]:
        """Remarks on the questions, as lines for the log."""
        lines = []
        if self._unanswerable:
            lines.append(f"{counted(self._unanswerable, 'question')} without an answer")
        if self._made:
            lines.append(
                f"{counted(self._made, 'question')} without an id: file and place are used instead, such as "
                f"{self._first_made!r}"
            )
        return lines

    def _files(self) -> Iterable[tuple[Path, Iterable[Row | Fault]]]:
        """Each file with its rows."""
        if self.content is None:
            return ((file, rows(file)) for file in find(self.path).data)
        numbered = enumerate(self.content, start=1)
        return [(self.path, (Row(Where(self.path, f"row {number}"), fields) for number, fields in numbered))]

    def _examples(self) -> Iterator[Example]:
        """All valid questions; invalid ones are added to the faults."""
        for file, content in self._files():
            first_fault, parsed, empty = None, False, True
            for row in content:
                empty = False
                parsed = parsed or isinstance(row, Row) or not row.what.startswith(NOT_JSON)
                result = self._example(row)
                if isinstance(result, Example):
                    yield result
                else:
                    first_fault = first_fault or result[0]
                    for fault in result:
                        self._faults.add(fault)
            if first_fault and not parsed:  # not JSON lines: one fault is enough
                alone = Faults()
                alone.add(first_fault)
                raise DataError(alone.sentence())
            if empty:
                raise DataError(f"{file} has no question: pass a file with questions, or remove it from the folder.")

    def _example(self, row: Row | Fault) -> Example | list[Fault]:
        if not isinstance(row, Row):
            return [row]
        result = self._read(row)
        if not isinstance(result, Example):
            return result
        if hash(result.id) in self._ids:
            return [Fault(row.where, "", f"the id {result.id!r} is used before", "give every question its own id")]
        self._ids.add(hash(result.id))
        if self.offsets and misplaced(result):
            self._faults.add(_misplaced_fault(result), forbids=False)
        return result

    def _read(self, row: Row) -> Example | list[Fault]:
        fields, where = row.fields, row.where
        id_, wrong = _id(fields.get("id"))
        faults = [(wrong, _ID)] if wrong else []
        faults += [fault for key in ("question", "context") if (fault := _text_fault(row, key))]
        answers = answers_of(fields, offsets=self.offsets)
        unscored = answers == MISSING and not self.answers
        if unscored:
            answers = ()
        if isinstance(answers, str):
            faults.append((answers, like(where)))
        elif not (answers or unscored or self.version_2_with_negative):
            faults.append(_NO_ANSWER)
        if faults or isinstance(answers, str):
            return [Fault(where, id_, *fault) for fault in faults]
        self._unscored += unscored
        self._unanswerable += not (answers or unscored)
        return Example(id_ or self._made_id(where), fields["question"], fields["context"], answers, where)

    def _made_id(self, where: Where) -> str:
        """The id of a question that has none: `part.json, row 3`."""
        name = where.file.name if where.file == self.path else str(where.file.relative_to(self.path))
        made = f"{name}, {where.place}"
        self._made += 1
        self._first_made = self._first_made or made
        return made


def misplaced(example: Example) -> bool:
    """Whether an answer's text is empty or not at its offset in the context."""
    return any(is_misplaced(answer, example.context) for answer in example.answers)


class AnswerCheck:
    """Skips questions whose answer's text is not at its offset. source: the name of the data in messages.

    A question is skipped even if the text occurs elsewhere in the context: choosing a place would be a guess, and
    training on a wrong guess would not be noticed. Questions without answers are kept.
    """

    def __init__(self, source: str = "the data") -> None:
        self.source = source
        self.seen = 0
        self.skipped = 0
        self._first: list[Example] = []

    def kept(self, examples: Iterable[Example]) -> Iterator[Example]:
        """The questions that are not skipped, in order."""
        for example in examples:
            self.seen += 1
            if misplaced(example):
                self.skipped += 1
                self._first += [example] if len(self._first) < SHOWN else []
            else:
                yield example

    def check(self, *, all_read: bool = True) -> None:
        """Raises DataError if more than 10 % of the questions were skipped.

        all_read: false if the data was not read to its end. Then at least eleven must be skipped as well, because the
        share among a few questions means little.
        """
        if self.skipped <= max(MISPLACED_LIMIT * self.seen, 0 if all_read else SHOWN):
            return
        raise DataError(
            f"In {self.source} {self.skipped} of {counted(self.seen, 'question')} "
            f"{'has' if self.skipped == 1 else 'have'} an answer whose text is not at its answer_start "
            f"({self._places()}), the first {_misplacement(self._first[0])}: {_COUNT_CHARACTERS}."
        )

    def note(self) -> str:
        """`1 question skipped, whose answer is not at its answer_start: train.jsonl, line 8 (id q8), the first …`.

        Empty if none was skipped.
        """
        if not self.skipped:
            return ""
        count = counted(self.skipped, "question")
        first = _misplacement(self._first[0])
        return f"{count} skipped, whose answer is not at its answer_start: {self._places()}, the first {first}"

    def _places(self) -> str:
        """The places of up to ten skipped questions, by file, and the number of others."""
        faults = groupby(map(_misplaced_fault, self._first), lambda fault: fault.where.file)
        places = [f"{file}, {at(rows)}" if file.name else at(rows) for file, rows in faults]
        more = self.skipped - len(self._first)
        return "; ".join([*places, *([f"and {more} more"] if more else [])])


def _misplaced_fault(example: Example) -> Fault:
    what = f"an answer's text is not at its answer_start: {_misplacement(example)}"
    return Fault(example.where or Where(Path(), ""), example.id, what, _COUNT_CHARACTERS)


def _misplacement(example: Example) -> str:
    answer = next(answer for answer in example.answers if is_misplaced(answer, example.context))
    return misplacement(answer, example.context)


def is_unicode(text: str) -> bool:
    """False for a text with an unpaired surrogate, which JSON can contain ("\\ud83d") and tokenizers reject."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _id(value: object) -> tuple[str, str]:
    """The id as text, empty if there is none; and its error, or an empty text."""
    if value is None or value == "" or value != value:  # missing values of tables are NaN
        return "", ""
    if (number := whole_number(value)) is not None:
        return str(number), ""
    if isinstance(value, str):
        return value, ""
    if isinstance(value, float):
        return "", f"the id {value} is not a whole number"
    return "", f"the id is {_KINDS.get(type(value), 'not a text')}"


def _text_fault(row: Row, key: str) -> tuple[str, str] | None:
    value = row.fields.get(key)
    if value is None:
        return f'"{key}" is missing', like(row.where)
    if not isinstance(value, str):
        return f'"{key}" is {_KINDS.get(type(value), f"a {type(value).__name__}")}, not a text', like(row.where)
    if not value.strip():
        return f'"{key}" is empty', like(row.where)
    if not is_unicode(value):
        return f'"{key}" holds half a character (an unpaired surrogate)', "write the text as UTF-8"
    return None
