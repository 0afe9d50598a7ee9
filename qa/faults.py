"""What is wrong in data files, all of it in one sentence: file, row (counted from 1), id, and what to do."""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

SHOWN = 10


class DataError(ValueError):
    """The data can't be used; the message is one sentence for the user: the file, the place and what to do."""


class Where(NamedTuple):
    """Where a question stands: `line 12`, `row 3` or `article 1, paragraph 2, question 1` of a file."""

    file: Path
    place: str

    @property
    def order(self) -> list[int]:
        """Its numbers, by which the rows of a file are sorted."""
        return [int(number) for number in re.findall(r"\d+", self.place)]


class Fault(NamedTuple):
    """What is wrong with a row, and what to `do`; `id` is empty where it has none. A row may have several."""

    where: Where
    id: str
    what: str
    do: str


class _Row(NamedTuple):
    """A row with all its faults in words."""

    where: Where
    id: str
    what: str


class Faults:
    """The faults of a data set."""

    def __init__(self) -> None:
        self.all: list[Fault] = []

    def sentence(self) -> str:
        """The first ten rows, in the order of their files, with all that is wrong with each; and how many more."""
        rows = self._rows()
        shown = rows[:SHOWN]
        files = [f"{file}, {_in_file(list(of_file))}" for file, of_file in groupby(shown, lambda row: row.where.file)]
        if len(rows) > SHOWN:
            files.append(f"and {len(rows) - SHOWN} more")
        named = {row.where for row in shown}
        remedies = "; ".join(dict.fromkeys(fault.do for fault in self.all if fault.where in named))
        if len(rows) == 1:
            return f"{files[0]}; {remedies}."
        return f"{len(rows)} rows can't be used: {'; '.join(files)}. {remedies[0].upper()}{remedies[1:]}."

    def _rows(self) -> list[_Row]:
        by_where: dict[Where, list[Fault]] = {}
        for fault in self.all:
            by_where.setdefault(fault.where, []).append(fault)
        files = list(dict.fromkeys(where.file for where in by_where))
        ordered = sorted(by_where, key=lambda where: (files.index(where.file), where.order))
        return [
            _Row(where, by_where[where][0].id, ", and ".join(fault.what for fault in by_where[where]))
            for where in ordered
        ]


def _in_file(rows: Sequence[_Row]) -> str:
    """`line 2, line 3 (id b): the question has no answer; line 7 (id g): …`: neighbours with one fault together."""
    return "; ".join(f"{at(list(alike))}: {what}" for what, alike in groupby(rows, lambda row: row.what))


def at(rows: Iterable[Fault | _Row]) -> str:
    """`line 3 (id q3), line 8 (id q8)`."""
    return ", ".join(" ".join(filter(None, (row.where.place, f"(id {row.id})" if row.id else ""))) for row in rows)


def counted(number: int, noun: str) -> str:
    """`1 question`, `2 questions`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
