"""The records of a body."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from berth.serve.errors import Kind, ServeError

_NOT_UTF8 = re.compile("[\udc80-\udcff]")
"""Characters that the error handler surrogateescape makes of bytes that are not UTF-8; valid UTF-8 never decodes to
them."""


@dataclass(frozen=True, slots=True)
class Records:
    """`values`: the decoded value of each record, or ServeError if it can't be decoded. It can be iterated once.

    `separate`: each record gets its own answer, in the same order. `header`: an answer in CSV begins with a row of
    column names. Only a CSV body without such a row gets an answer without it.
    """

    values: Iterator[Any]
    separate: bool
    header: bool = False
    count: int = 1


def check_bytes(text: str, what: str) -> None:
    """ServeError (400) if a record's text was not valid UTF-8. `what`: line or row."""
    if _NOT_UTF8.search(text):
        sentence = f"the {what} is not UTF-8: send it in UTF-8"
        raise ServeError(Kind.BAD_REQUEST, sentence)
