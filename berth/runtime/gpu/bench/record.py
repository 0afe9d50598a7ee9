"""A check of the GPUs, its result as a record, and the table of records. Pure.

A check returns a `Measured`; `judge`, `failed` and `skipped` make a `Record` of it. The ratio is the measured value
divided by the manufacturer's limit. A check is slow if its ratio is below what such a chip or link reaches in practice.
Slow is only a hint; the exit code depends on failed checks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    SLOW = "slow"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of a check: `value` and `limit` in `unit`, None if there is nothing to measure or to compare with.

    enough: it counts as slow if the ratio of value to limit is lower. note: for the table. details (plain types): for
    the JSON.
    """

    value: float | None = None
    unit: str = ""
    limit: float | None = None
    enough: float = 0.5
    note: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Value divided by limit, None if one of them is unknown."""
        return None if self.value is None or not self.limit else self.value / self.limit


@dataclass(frozen=True, slots=True)
class Check:
    """A check: name, the function that measures a device (`module:name`), time limit in seconds, required modules."""

    name: str
    function: str
    limit: float
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """A check's name and outcome; the note of `measured` is the reason if it was skipped or failed."""

    name: str
    status: Status
    measured: Measured

    def as_dict(self) -> dict[str, Any]:
        """Plain types, for JSON."""
        return {"name": self.name, "status": str(self.status), **asdict(self.measured), "ratio": self.measured.ratio}


def judge(name: str, measured: Measured) -> Record:
    """The record of a completed check."""
    slow = measured.ratio is not None and measured.ratio < measured.enough
    return Record(name, Status.SLOW if slow else Status.OK, measured)


def failed(name: str, reason: str) -> Record:
    """The record of a failed check."""
    return Record(name, Status.FAILED, Measured(note=reason))


def skipped(name: str, reason: str) -> Record:
    """The record of a check that can't run here."""
    return Record(name, Status.SKIPPED, Measured(note=reason))


def table(records: Sequence[Record]) -> str:
    """The table: a header and one line per record, aligned, without trailing spaces."""
    rows = [("check", "measured", "limit", "share", "status", "note")]
    for record in records:
        measured = record.measured
        share = "" if measured.ratio is None else f"{measured.ratio:.2f}"
        note = measured.note.partition("\n")[0]
        value, limit = (_quantity(each, measured.unit) for each in (measured.value, measured.limit))
        rows.append((record.name, value, limit, share, str(record.status), note))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def _quantity(value: float | None, unit: str) -> str:
    """Three significant digits or whole numbers: 0.0123 s, 12.3 ms, 788 TFLOP/s."""
    if value is None:
        return "–"
    return f"{value:.0f} {unit}" if abs(value) >= 100 else f"{value:.3g} {unit}"
