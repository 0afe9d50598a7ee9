"""What a body holds, record by record."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Records:
    """What a body holds: values that were decoded, or ServeError for one that can't be. They are decoded one by one,
    once.

    `separate`: each has an answer of its own, in its place. `header`: an answer in CSV begins with the names of its
    columns, as to all bodies but a CSV that has no such line itself.
    """

    values: Iterator[Any]
    separate: bool
    header: bool = False
    count: int = 1
