"""Collects the errors of data files into one message: file, row (counted from 1), id, and what to do."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

SHOWN = 10


class DataError(ValueError):
    """The data can't be used; the message is for the user: the file, the place and what to do."""


class Where(NamedTuple):
    """The place of a question: `line 12`, `row 3` or `article 1, paragraph 2, question 1` of a file."""

    file: Path
    place: str


class Fault(NamedTuple):
    """An error of a row, and what to `do`; `id` is empty if the row has none. A row may have several faults."""

    where: Where
    id: str
    what: str
    do: str


class Faults:
    """The faults of a data set, added in order. Keeps the first rows for the message and counts the others."""

    def __init__(self) -> None:
        self._rows: dict[Where, list[Fault]] = {}
        self._count = 0  # of rows
        self._forbids = False
        self._last: Where | None = None

    def __bool__(self) -> bool:
        return self._forbids

    def add(self, fault: Fault, *, forbids: bool = True) -> None:
        """Add a fault. forbids: false for a fault that is only reported together with others."""
        self._forbids = self._forbids or forbids
        if fault.where != self._last:
            self._last = fault.where
            self._count += 1
            if self._count <= SHOWN:
                self._rows[fault.where] = []
        if fault.where in self._rows:
            self._rows[fault.where].append(fault)

    def sentence(self) -> str:
        """The message: the first ten rows with their faults, grouped by file, and the number of further rows."""
        shown = [
            faults[0]._replace(what=", and ".join(fault.what for fault in faults)) for faults in self._rows.values()
        ]
        files = [f"{file}, {_in_file(list(rows))}" for file, rows in groupby(shown, lambda row: row.where.file)]
        if self._count > SHOWN:
            files.append(f"and {self._count - SHOWN} more")
        remedies = "; ".join(dict.fromkeys(fault.do for faults in self._rows.values() for fault in faults))
        if self._count == 1:
            return f"{files[0]}; {remedies}."
        return f"{self._count} rows can't be used: {'; '.join(files)}. {remedies[0].upper()}{remedies[1:]}."


def _in_file(rows: Sequence[Fault]) -> str:
    """`line 2, line 3 (id b): the question has no answer; line 7 (id g): …`; consecutive rows with equal faults are
    grouped.
    """
    return "; ".join(f"{at(list(alike))}: {what}" for what, alike in groupby(rows, lambda row: row.what))


def at(rows: Iterable[Fault]) -> str:
    """`line 3 (id q3), line 8 (id q8)`."""
    return ", ".join(" ".join(filter(None, (row.where.place, f"(id {row.id})" if row.id else ""))) for row in rows)
