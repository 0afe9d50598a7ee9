"""Reads CSV (RFC 4180) with a question per row, also in the parts of a file that a batch transform sends.

SageMaker cuts a file into bodies, and a body does not say which part it is. With SplitType Line only the first body has
the row of column names, and a text of several lines may be cut in two. A body whose answers could be wrong or in the
wrong place is refused; SageMaker then ends the job with the error in its log.
"""

import csv
import io
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from berth.contract.words import counted
from berth.serve.errors import Kind, ServeError
from berth.serve.limits import RequestLimits
from berth.serve.questions import near_misses
from berth.serve.questions.records import Records, check_bytes

_QUESTION = ("question", "context")
_QUOTES = "put a text into double quotes whole, and write a double quote that is part of it twice"
_NOT_CLOSED = "unexpected end of data"  # csv's own words

csv.field_size_limit(sys.maxsize)  # limits.py limits bodies and texts


class CutFileError(ServeError):
    """A file of a batch transform can't be read in parts: its later bodies may look valid."""

    def __init__(self, message: str) -> None:
        super().__init__(Kind.BAD_REQUEST, message)

    def of_a_later_body(self) -> "CutFileError":
        """The error for a later body, which may be a part of the same file."""
        return CutFileError(f"a body before this one was refused, and this one may be of the same file: {self.message}")


def read_rows(text: str, limits: RequestLimits) -> Iterator[list[str] | ServeError]:
    """Yields the rows that are not empty, and ServeError for one that can't be read. Raises ServeError for a double
    quote that is not closed (400), or a row that is too long (413).
    """
    characters = 0  # of the current row

    def lines() -> Iterator[str]:
        nonlocal characters
        for line in io.StringIO(text, newline=""):
            characters += len(line)
            if characters > limits.record_characters:
                raise limits.record_too_long(characters)
            yield line

    reader = csv.reader(lines(), strict=True)
    while True:
        begin, characters = reader.line_num + 1, 0
        try:
            if row := next(reader):
                yield row
        except StopIteration:
            return
        except csv.Error as error:
            if str(error) == _NOT_CLOSED or reader.line_num > begin:
                raise _open_quote(begin, limits) from None
            yield ServeError(Kind.BAD_REQUEST, f"the row is not CSV ({error} in line {begin}): {_QUOTES}")


def _open_quote(line: int, limits: RequestLimits) -> ServeError:
    """The error for a double quote that is not closed: nobody can know where its row ends. In a batch transform a body
    may end in the middle of a text of several lines, and the next body begins there.
    """
    if not limits.batch:
        return ServeError(
            Kind.BAD_REQUEST, f"the body is not CSV (a double quote stays open in line {line}): {_QUOTES}"
        )
    return CutFileError(
        f"a double quote stays open in line {line} of this body: if a text of the file has several lines, SplitType "
        "Line cuts it in two: set SplitType to None, or send JSON lines; else close the quote in its line, and write a "
        "double quote that is part of a text twice",
    )


def read_csv(text: str, limits: RequestLimits) -> Records:
    """One question per row. If the first row names the columns `question` and `context`, it decides where they are, and
    other columns are ignored. Without such a row the two columns are question and context.
    """
    if near_misses.begins_as_json(text):
        raise ServeError(
            Kind.BAD_REQUEST, "the body is JSON: send it as `application/json` or `application/jsonlines`, not as CSV"
        )
    rows = read_rows(text, limits)
    first = next(rows, None)
    names = _names(first)
    if names:
        if limits.batch:
            _check_names_of_transform(names)
    elif first is not None:
        rows = chain([first], rows)
    places = (names.index("question"), names.index("context")) if names else (0, 1)
    columns = len(names) or len(_QUESTION)
    values: list[Any] = []
    for row in rows:
        limits.check_records(len(values) + 1)
        values.append(_csv_value(row, places, columns, named=bool(names)))
    if names and not values and not limits.batch:
        raise ServeError(Kind.BAD_REQUEST, "the body has only a row of column names: send a question a row")
    return Records(iter(values), separate=True, header=bool(names), count=len(values))


def _names(first: list[str] | ServeError | None) -> list[str]:
    """The column names in the first row, if it names question and context; ServeError (400) if it names only one."""
    names = [name.strip().lower() for name in first] if isinstance(first, list) else []
    named = [name for name in _QUESTION if name in names]
    if len(named) == 1:
        sentence = f"the first row names only the column `{named[0]}`: name both, `question` and `context`, or none"
        raise ServeError(Kind.BAD_REQUEST, sentence)
    return names if named else []


def _check_names_of_transform(names: Sequence[str]) -> None:
    """CutFileError (400) unless the columns are question, context: the later bodies of a file have no column names."""
    if tuple(names) == _QUESTION:
        return
    first = names.index("question")
    if names.index("context") == first + 1:
        advice = f'set the job\'s InputFilter to "$[{first}:{first + 2}]" (with JoinSource Input the others come back)'
    else:
        advice = "write the file with these two columns in this order"
    raise CutFileError(
        f"the first row names the columns {', '.join(names)[:200]}, and with SplitType Line only the first body of a "
        f"file has this row: in a batch transform the columns must be question, context and no others: {advice}"
    )


def _csv_value(row: list[str] | ServeError, places: tuple[int, int], columns: int, *, named: bool) -> Any:
    """The question in a row, or ServeError. `named`: whether the first row has column names."""
    if isinstance(row, ServeError):
        return row
    if len(row) != columns:
        wanted = f"{columns}, those of the first row" if named else "2, question and context"
        quotes = "; put a text with commas into double quotes" if len(row) > columns else ""
        return ServeError(
            Kind.BAD_REQUEST,
            f"the row has {counted(len(row), 'column')}: it must have {wanted}, separated by commas{quotes}",
        )
    texts = {name: row[place] for name, place in zip(_QUESTION, places, strict=True)}
    try:
        check_bytes("".join(texts.values()), "row")
    except ServeError as error:
        return error
    return {"inputs": texts}
