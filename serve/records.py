"""What a body holds, record by record."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from berth.serve.errors import Kind, ServeError

_NOT_UTF8 = re.compile("[\udc80-\udcff]")
"""What the error handler surrogateescape makes of bytes that are not UTF-8, and nothing else does in decoded text."""


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


def check_bytes(text: str, what: str) -> None:
    """Pass if a record's text, as it was decoded, came of UTF-8; ServeError (400) otherwise. `what`: line or row."""
    if _NOT_UTF8.search(text):
        sentence = f"the {what} is not UTF-8: send it in UTF-8"
        raise ServeError(Kind.BAD_REQUEST, sentence)
