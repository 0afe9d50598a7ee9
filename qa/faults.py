"""What is wrong in data files, all of it in one sentence: file, row (counted from 1), id, and what to do."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

SHOWN = 10


class DataError(ValueError):
    """The data can't be used; the message is one sentence for the user: the file, the place and what to do."""


class Where(NamedTuple):
    """Where a question stands: `line 12`, `row 3` or `article 1, paragraph 2, question 1` of a file."""

    file: Path
    place: str


class Fault(NamedTuple):
    """One row that can't be used: `what` is wrong with it, and what to `do`; `id` is empty where it has none."""

    where: Where
    id: str
    what: str
    do: str


class Faults:
    """The faults of a data set: how many, and the first ten."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """Note one more."""
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append(fault)

    def sentence(self) -> str:
        """All of them: rows with the same fault in one file stand together."""
        if self.count == 1:
            (fault,) = self.first
            return f"{fault.where.file}, {at([fault])}: {fault.what}; {fault.do}."
        groups: dict[tuple[Path, str], list[Fault]] = {}
        for fault in self.first:
            groups.setdefault((fault.where.file, fault.what), []).append(fault)
        told = [f"{file}, {at(group)}: {what}" for (file, what), group in groups.items()]
        if self.count > len(self.first):
            told.append(f"and {self.count - len(self.first)} more")
        remedies = "; ".join(dict.fromkeys(fault.do for fault in self.first))
        return f"{self.count} rows can't be used: {'; '.join(told)}. {remedies[0].upper()}{remedies[1:]}."


def at(faults: Iterable[Fault]) -> str:
    """`line 3 (id q3), line 8 (id q8)`."""
    return ", ".join(
        " ".join(filter(None, (fault.where.place, f"(id {fault.id})" if fault.id else ""))) for fault in faults
    )


def counted(number: int, noun: str) -> str:
    """`1 question`, `2 questions`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
