"""Questions with their contexts and gold answers: read from files, checked, refused with a sentence that says where.

`read` and QuestionReader take SQuAD v1.1, v2.0 and anything of the same shape, in the layouts of files.py. AnswerCheck
sorts out questions whose answers are not where the data says. Both go through data that no memory would hold.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from berth.qa.answers import (
    MISSING,
    Answer,
    answers_of,
    is_misplaced,
    misplacement,
    whole_number,
)
from berth.qa.faults import SHOWN, DataError, Fault, Faults, Where, at, counted
from berth.qa.files import NOT_JSON, Row, find, like, rows

__all__ = ["Answer", "AnswerCheck", "DataError", "Example", "QuestionReader", "is_unicode", "misplaced", "read"]

_NO_ANSWER = (
    "the question has no answer",
    "set version_2_with_negative to True if the data has questions that the context does not answer, otherwise remove "
    "the question",
)
_ID = "give every question a text or a whole number as its id, or leave all ids out"
_COUNT_CHARACTERS = (
    "count answer_start in characters of the context as it stands in the file (not in bytes, and before any change of "
    "white space or line ends)"
)
_KINDS = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}
MISPLACED_LIMIT = 0.10
"""Above this share of questions whose answers are not at their offsets, the offsets of the whole data set are wrong."""


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
    """All questions of a data file or of the data files in a folder, as QuestionReader has them."""
    reader = QuestionReader(path, version_2_with_negative=version_2_with_negative, offsets=offsets)
    examples = list(reader)
    reader.check()
    return examples


class QuestionReader:
    """The questions of a data file or of the data files in a folder, one after another, in order.

    To be gone through once, to the end or not, and to be checked afterwards. A file that is not SQuAD or is empty
    raises DataError while it is read. With `offsets`, as for training, every answer needs one; whether it is right is
    left to `AnswerCheck`, but wrong ones are told beside other faults. Without `answers`, as for predictions, none of
    the questions needs any; `scored` tells whether they have them.
    """

    def __init__(
        self, path: Path, *, version_2_with_negative: bool = False, offsets: bool = False, answers: bool = True
    ) -> None:
        self.path = path
        self.answers = answers
        self.version_2_with_negative = version_2_with_negative
        self.offsets = offsets
        self._faults = Faults()
        self._ids: set[int] = set()  # their hashes: the ids themselves would fill the memory where the files do not
        self.counts: Counter[Path] = Counter()
        """Good questions of each file that was begun."""
        self._unscored = 0
        self._unanswerable = 0
        self._made = 0
        self._first_made = ""

    def files(self) -> Iterable[tuple[Path, Iterable[Row | Fault]]]:
        """Each file with its rows."""
        return ((file, rows(file)) for file in find(self.path).data)

    def __iter__(self) -> Iterator[Example]:
        """Up to the first fault: what follows it is looked at for more faults only."""
        for example in self._examples():
            self.counts[example.where.file if example.where else self.path] += 1
            if not self._faults:
                yield example

    def check(self) -> None:
        """Raises DataError that names every question, of those that were read, that lacks its text or its context, the
        id of which can't be one or comes twice (the metrics go by id), or that lacks an answer although
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
        """Whether the questions that were read say what is right, so that predictions can be measured."""
        return self._unscored < self.counts.total()

    def notes(self) -> list[str]:
        """What was done to the questions, in lines for the log."""
        lines = []
        if self._unanswerable:
            lines.append(f"{counted(self._unanswerable, 'question')} without an answer")
        if self._made:
            lines.append(
                f"{counted(self._made, 'question')} without an id: file and place stand for it, such as "
                f"{self._first_made!r}"
            )
        return lines

    def _examples(self) -> Iterator[Example]:
        """Every good question; the others are noted as faults."""
        for file, content in self.files():
            first_fault, parsed, empty = None, False, True
            for row in content:
                empty = False
                parsed = parsed or isinstance(row, Row) or not row.what.startswith(NOT_JSON)
                found = self._example(row)
                if isinstance(found, Example):
                    yield found
                else:
                    first_fault = first_fault or found[0]
                    for fault in found:
                        self._faults.add(fault)
            if first_fault and not parsed:  # no file of lines: that each of them is none says no more
                alone = Faults()
                alone.add(first_fault)
                raise DataError(alone.sentence())
            if empty:
                raise DataError(f"{file} holds no question: pass a file with questions, or remove it from the folder.")

    def _example(self, row: Row | Fault) -> Example | list[Fault]:
        if not isinstance(row, Row):
            return [row]
        found = self._read(row)
        if not isinstance(found, Example):
            return found
        where = row.where
        if hash(found.id) in self._ids:
            return [Fault(where, "", f"the id {found.id!r} is used before", "give every question its own id")]
        self._ids.add(hash(found.id))
        if self.offsets and misplaced(found):
            self._faults.add(_misplaced_fault(found), forbids=False)
        return found

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
        """Of a question that has none: `part.json, row 3`."""
        name = where.file.name if where.file == self.path else str(where.file.relative_to(self.path))
        made = f"{name}, {where.place}"
        self._made += 1
        self._first_made = self._first_made or made
        return made


def misplaced(example: Example) -> bool:
    """Whether an answer's text is not (or is nothing) at its offset in the context."""
    return any(is_misplaced(answer, example.context) for answer in example.answers)


class AnswerCheck:
    """Leaves out the questions whose answer's text is not at its offset, of data that is called `source`.

    A misplaced answer is left out even if its text stands elsewhere in the context: which of several places is meant
    would be a guess, and training on a wrong guess goes unseen. Questions without answers are kept.
    """

    def __init__(self, source: str = "the data") -> None:
        self.source = source
        self.seen = 0
        self.skipped = 0
        self._first: list[Example] = []

    def kept(self, examples: Iterable[Example]) -> Iterator[Example]:
        """The others, in order."""
        for example in examples:
            self.seen += 1
            if misplaced(example):
                self.skipped += 1
                self._first += [example] if len(self._first) < SHOWN else []
            else:
                yield example

    def check(self, *, all_read: bool = True) -> None:
        """Raises DataError where more than 10 % of the questions are left out; of data that was not read to its end
        more than ten, too, for the share of a few says nothing.
        """
        if self.skipped <= max(MISPLACED_LIMIT * self.seen, 0 if all_read else SHOWN):
            return
        raise DataError(
            f"In {self.source} {self.skipped} of {counted(self.seen, 'question')} "
            f"{'has' if self.skipped == 1 else 'have'} an answer whose text is not at its answer_start "
            f"({self._places()}), the first {_misplacement(self._first[0])}: {_COUNT_CHARACTERS}."
        )

    def note(self) -> str:
        """`1 question skipped, whose answer is not at its answer_start: train.jsonl, line 8 (id q8), the first …`; else
        empty.
        """
        if not self.skipped:
            return ""
        count = counted(self.skipped, "question")
        first = _misplacement(self._first[0])
        return f"{count} skipped, whose answer is not at its answer_start: {self._places()}, the first {first}"

    def _places(self) -> str:
        """The places of up to ten questions, by file, and the number of the rest."""
        files: dict[str, list[Fault]] = {}
        for fault in map(_misplaced_fault, self._first):
            files.setdefault(str(fault.where.file), []).append(fault)
        places = [f"{file}, {at(faults)}" if file != "." else at(faults) for file, faults in files.items()]
        more = self.skipped - len(self._first)
        return "; ".join([*places, *([f"and {more} more"] if more else [])])


def _misplaced_fault(example: Example) -> Fault:
    what = f"an answer's text is not at its answer_start: {_misplacement(example)}"
    return Fault(example.where or Where(Path(), ""), example.id, what, _COUNT_CHARACTERS)


def _misplacement(example: Example) -> str:
    answer = next(answer for answer in example.answers if is_misplaced(answer, example.context))
    return misplacement(answer, example.context)


def is_unicode(text: str) -> bool:
    """False for a text with half a surrogate pair, which JSON can spell ("\\ud83d") and no tokenizer takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _id(value: object) -> tuple[str, str]:
    """The id as text, empty if there is none; and what is wrong with it."""
    if value is None or value == "" or value != value:  # a table's hole is NaN
        return "", ""
    if (number := whole_number(value)) is not None:
        return str(number), ""
    if isinstance(value, str):
        return value, ""
    if isinstance(value, float):
        return "", f"the id {value} is no whole number"
    return "", f"the id is {_KINDS.get(type(value), 'no text')}"


def _text_fault(row: Row, key: str) -> tuple[str, str] | None:
    value = row.fields.get(key)
    if value is None:
        return f'"{key}" is missing', like(row.where)
    if not isinstance(value, str):
        return f'"{key}" is {_KINDS.get(type(value), "no text")}, not a text', like(row.where)
    if not value.strip():
        return f'"{key}" is empty', like(row.where)
    if not is_unicode(value):
        return f'"{key}" holds half a character (an unpaired surrogate)', "write the text as UTF-8"
    return None
