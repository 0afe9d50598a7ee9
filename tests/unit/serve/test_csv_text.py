"""Rows of CSV, and which lines a broken quote costs."""

import csv
import io
import random
import time

import pytest

from berth.serve.csv_text import BrokenRow, RowLimits, all_rows, read_rows
from berth.serve.errors import Kind, ServeError


def read(text: str) -> list[object]:
    """The rows; of a broken one its line and how many lines are lost."""
    found = read_rows(text, is_row=lambda row: len(row) == 2)
    return [(row.line, row.lines) if isinstance(row, BrokenRow) else row for row in found]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_rows_are_those_that_pythons_csv_has_written(end: str) -> None:
    rows = [["a", "b"], ["", ""], ['say "a", and', f"two{end}lines"], ["x"], [" y ", "\u2028", "z"], ['""']]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=end).writerows(rows)
    for read_all in (all_rows, lambda text: list(read_rows(text))):
        assert read_all(text.getvalue()) == rows
        assert read_all(end + text.getvalue().replace(f"x{end}", f"x{end}{end}{end}").rstrip()) == rows


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('a,b\nc,"d\ne,f\n', [["a", "b"], (2, 1), ["e", "f"]]),
        ('a,b\n\nc,"d\n', [["a", "b"], (3, 1)]),
        ('a,b\r\nc,"d"x\r\ne,f', [["a", "b"], (2, 1), ["e", "f"]]),
        ('c,"d\ne,"f"\ng,h\n', [(1, 1), ["e", "f"], ["g", "h"]]),
        ('c,"d\nno row\n\nnor, this, one\ng,h\n', [(1, 4), ["g", "h"]]),
        ('c,"d\nand "e"\nf"\ng,"h\ni"\nj,k\n', [(1, 5), ["j", "k"]]),
        ('c,"d\nno row', [(1, 2)]),
    ],
    ids=["open", "open at the end", "text behind", "closed by another", "lost lines", "lines of a text", "all lost"],
)
def test_a_broken_quote_costs_lines_up_to_the_next_row(text: str, rows: list[object]) -> None:
    assert read(text) == rows


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('a,"b\nc,d\n', "a double quote stays open in line 1"),
        ('a,"b\nc\nd,e\n', "a double quote stays open in line 1, with which line 2 is lost"),
        ('a,"b\nc\nd\ne,f\n', "a double quote stays open in line 1, with which lines 2 to 3 are lost"),
        ('a,"b"c\n', "',' expected after '\"' in line 1"),
    ],
)
def test_a_broken_row_says_what_it_costs(text: str, fault: str) -> None:
    row = next(read_rows(text, is_row=lambda row: len(row) == 2))
    assert isinstance(row, BrokenRow)
    quotes = "put a text into double quotes whole, and write a double quote that is part of it twice"
    assert (row.error.kind, row.error.message) == (Kind.BAD_REQUEST, f"the row is not CSV ({fault}): {quotes}")
    with pytest.raises(ServeError, match="the row is not CSV"):
        all_rows(text)


def test_a_row_that_is_too_long_costs_no_other() -> None:
    text = f'a,b\n{"c" * 20},\n"d",\n"e\n{"f" * 20}"\ng,h\n'
    found = list(read_rows(text, RowLimits(characters=12), lambda row: len(row) == 2))
    kinds = [row.error.kind if isinstance(row, BrokenRow) else row for row in found]
    assert kinds == [["a", "b"], Kind.TOO_LARGE, ["d", ""], Kind.BAD_REQUEST, Kind.TOO_LARGE, ["g", "h"]]


def test_lost_lines_have_an_end() -> None:
    [row] = read_rows('"\n' + "no row\n" * 100, RowLimits(lost_lines=9), lambda row: len(row) == 2)
    assert isinstance(row, BrokenRow)
    assert row.lines == 11


def test_random_texts_are_read_as_by_pythons_csv() -> None:
    draw = random.Random(1)
    agreed = 0
    for _ in range(20_000):
        text = "".join(draw.choices('a,"\n\r ', (3, 3, 4, 2, 1, 1), k=draw.randint(1, 12)))
        try:
            theirs = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
        except csv.Error:
            with pytest.raises(ServeError):
                all_rows(text)
        else:
            agreed += 1
            assert list(read_rows(text)) == all_rows(text) == theirs, text
    assert agreed > 5000


def test_many_open_quotes_take_no_longer_than_few() -> None:
    """Each of these lines begins and ends within a quote, for whoever begins outside of one as well."""
    text = 'a","""\nc,d\n' * 20_000
    began = time.process_time()
    found = list(read_rows(text, is_row=lambda row: len(row) == 2))
    assert len(found) == 40_000
    assert time.process_time() - began < 5  # 0.2 s; one by one they would take minutes
