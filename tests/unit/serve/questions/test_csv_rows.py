"""Rows of CSV, and errors of misplaced quotes."""

import csv
import io
import random

import pytest

from berth.serve.errors import Kind, ServeError
from berth.serve.limits import RequestLimits
from berth.serve.questions.csv_questions import read_rows


def read(text: str) -> list[object]:
    """The rows; for one that can't be read, its error."""
    found = read_rows(text, RequestLimits())
    return [row.message if isinstance(row, ServeError) else row for row in found]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_read_rows_reads_what_pythons_csv_writes(end: str) -> None:
    rows = [["a", "b"], ["", ""], ['say "a", and', f"two{end}lines"], ["x"], [" y ", "\u2028", "z"], ['""']]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=end).writerows(rows)
    assert read(text.getvalue()) == rows
    assert read(end + text.getvalue().replace(f"x{end}", f"x{end}{end}{end}").rstrip()) == rows


def test_misplaced_quote_is_an_error_of_its_row_only() -> None:
    first, broken, last = read('a,b\nc,"d"x\r\ne,f')
    assert (first, last) == (["a", "b"], ["e", "f"])
    assert str(broken).startswith("the row is not CSV (',' expected after '\"' in line 2): put a text into double")


@pytest.mark.parametrize(
    ("text", "line"),
    [('a,b\nc,"d\ne,f\n', 2), ('a,b\n\nc,"d\n', 3), ('c,"d\ne,"f"\ng,h\n', 1), ('c,"d\nno row', 1)],
    ids=["open", "open at the end", "closed by another", "all lost"],
)
def test_open_quote_is_an_error_of_the_body(text: str, line: int) -> None:
    with pytest.raises(ServeError, match=f"a double quote stays open in line {line}") as caught:
        read(text)
    assert caught.value.kind == Kind.BAD_REQUEST


def test_read_rows_agrees_with_pythons_csv_on_random_texts() -> None:
    draw = random.Random(1)
    agreed = 0
    for _ in range(20_000):
        text = "".join(draw.choices('a,"\n\r ', (3, 3, 4, 2, 1, 1), k=draw.randint(1, 12)))
        try:
            expected = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
        except csv.Error:
            continue
        agreed += 1
        assert read(text) == expected, text
    assert agreed > 5000
