"""CSV as RFC 4180 has it: rows one by one, and which lines a broken double quote costs."""

import csv
import io
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from berth.serve.errors import Kind, ServeError
from berth.serve.limits import TOKENS_VARIABLE

_QUOTES = "put a text into double quotes whole, and write a double quote that is part of it twice"
_NOT_CLOSED = "unexpected end of data"  # csv's own words
_LINE_END = re.compile(r"\r\n?|\n")
_IN_LINE = re.compile(r"[^\r\n]")
_QUOTED = re.compile(r'"[^"]*"')
_MOST_OPEN = 20
"""Quotes that stay open for which the text is searched to its end. Behind them a quote must be closed in its line, so
that a text of open quotes takes no more than 20 times as long as another."""

csv.field_size_limit(sys.maxsize)  # bodies and texts have limits of their own


class BrokenRow(NamedTuple):
    """A row that can't be read."""

    line: int
    """In which it begins, from 1 on."""
    lines: int
    """How many are lost, this one included."""
    stays_open: bool
    """A double quote is not closed in its line, so that no reader knows which lines belong to the row."""
    error: ServeError


@dataclass(frozen=True, slots=True)
class RowLimits:
    """What is read of a text."""

    characters: int = sys.maxsize
    """Of a row."""
    lost_lines: int = sys.maxsize
    """That a broken row may cost; if it costs more, it costs all that follow."""


def read_rows(
    text: str, limits: RowLimits = RowLimits(), is_row: Callable[[list[str]], bool] = bool
) -> Iterator[list[str] | BrokenRow]:
    """The rows of a text that are not empty.

    A double quote that stays open costs the lines behind it up to the first one that is a row by itself, and of which
    `is_row` is true.
    """
    lines = _Lines(text, limits.characters)
    open_quotes = 0
    while lines.begin_row():
        begin = lines.place
        line = begin[1] + 1
        source: Iterator[str] = lines if open_quotes < _MOST_OPEN else islice(lines, 1)
        row: list[str] | BrokenRow
        try:
            row = next(csv.reader(source, strict=True))
        except StopIteration:
            lines.skip_line()
            sentence = f"the row in line {line} has more than {limits.characters} characters"
            sentence += f": shorten its texts, or raise {TOKENS_VARIABLE}"
            row = BrokenRow(line, 1, stays_open=False, error=ServeError(Kind.TOO_LARGE, sentence))
        except csv.Error as error:
            stays_open = str(error) == _NOT_CLOSED or lines.taken > line
            lines.place = begin
            lines.skip_line()
            lost = lines.skip_lost(limits.lost_lines, is_row) if stays_open else 0
            open_quotes += stays_open
            fault = "a double quote stays open" if stays_open else str(error)
            sentence = f"the row is not CSV ({fault} in line {line}{_lost(line, lost)}): {_QUOTES}"
            row = BrokenRow(line, 1 + lost, stays_open, ServeError(Kind.BAD_REQUEST, sentence))
        yield row


def all_rows(text: str) -> list[list[str]]:
    """The rows that are not empty; ServeError (400) for the first that can't be read."""
    try:
        return [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error:
        raise next(row.error for row in read_rows(text) if isinstance(row, BrokenRow)) from None


class _Lines:
    """The lines of a text, of which csv.reader takes as many as a row has, up to so many characters of it."""

    def __init__(self, text: str, characters: int) -> None:
        self._text = text
        self._characters = characters
        self._only_line_feeds = "\r" not in text
        self._begin = 0
        self._position = 0
        self.taken = 0

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        begin, end = self._position, self._line_end()
        if begin == len(self._text) or end - self._begin > self._characters:
            raise StopIteration
        self._position = end
        self.taken += 1
        return self._text[begin:end]

    @property
    def place(self) -> tuple[int, int]:
        """Characters and lines that have been taken."""
        return self._position, self.taken

    @place.setter
    def place(self, place: tuple[int, int]) -> None:
        self._position, self.taken = place
        self._begin = self._position

    def begin_row(self) -> bool:
        """Go on to the next line that is not empty; False if there is none."""
        found = _IN_LINE.search(self._text, self._position)
        end = found.start() if found else len(self._text)
        if end > self._position:
            count, between = self._text.count, (self._position, end)
            self.taken += count("\n", *between) + count("\r", *between) - count("\r\n", *between)
        self.place = end, self.taken
        return found is not None

    def skip_line(self) -> None:
        """Go behind this line, however long it is."""
        self.place = self._line_end(), self.taken + 1

    def skip_lost(self, most: int, is_row: Callable[[list[str]], bool]) -> int:
        """Go to the next line that is a row by itself, or to the end if it is not among `most`; how many are skipped,
        up to the last that is not empty.
        """
        first = last = self.taken
        while self.begin_row():
            place = self.place
            line = next(self, None)
            if line is None or _is_whole_row(line, is_row):
                self.place = place
                break
            last = self.taken
            if last - first > most:
                self.place = len(self._text), last
        return last - first

    def _line_end(self) -> int:
        if self._only_line_feeds:
            return self._text.find("\n", self._position) + 1 or len(self._text)
        found = _LINE_END.search(self._text, self._position)
        return found.end() if found else len(self._text)


def _is_whole_row(line: str, is_row: Callable[[list[str]], bool]) -> bool:
    """Whether a line is surely a row by itself, and no part of a text: no quote stands inside a text without quotes."""
    try:
        row = next(csv.reader([line], strict=True))
    except csv.Error:
        return False
    cells = _QUOTED.sub("\0", line.rstrip("\r\n")).split(",")
    return is_row(row) and not any('"' in cell or (cell.strip("\0") and "\0" in cell) for cell in cells)


def _lost(line: int, lines: int) -> str:
    if not lines:
        return ""
    return f", with which {f'line {line + 1} is' if lines == 1 else f'lines {line + 1} to {line + lines} are'} lost"
