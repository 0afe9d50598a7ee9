"""The media types that are read and written: one row of a table each.

A body is one record or many. JSON is one: what is wrong with it is the response's status. JSON lines and CSV are a
record a line, and each is answered in its place and order: an error costs no other record its answer, and stands there
as the same object that the body of a refusal has, or in CSV in the column `error`.
"""

import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from berth.serve.errors import Kind, ServeError
from berth.serve.json_text import decode, dump
from berth.serve.media_types import best_of, encoding_of, split

JSON, JSON_LINES, CSV = "application/json", "application/jsonlines", "text/csv"
_EXAMPLE = '{"inputs": {"question": "…", "context": "…"}}'
_WANTED = {
    JSON: f"send {_EXAMPLE}",
    JSON_LINES: f"send a request a line, such as {_EXAMPLE}",
    CSV: 'send a question a row, such as "…question…","…context…"',
}
"""What to send in place of nothing."""
_QUESTION = ("question", "context")
_ANSWER = ("score", "start", "end", "answer", "error")

csv.field_size_limit(sys.maxsize)  # bodies and texts have limits of their own

Outcome = Any
"""What came of a record: a JSON value, or ServeError."""


@dataclass(frozen=True, slots=True)
class Records:
    """What a body holds: values that were decoded, or ServeError where one can't be.

    `separate`: each has an answer of its own, in its place. `header`: an answer in CSV begins with the names of its
    columns, as to all bodies but a CSV that has no such line itself.
    """

    values: Sequence[Any]
    separate: bool
    header: bool = False


@dataclass(frozen=True, slots=True)
class Codec:
    """A media type: how its text becomes records (ServeError if none of it can be read), and outcomes its text
    (ServeError if they have no such form).
    """

    media_type: str
    read: Callable[[str], Records]
    write: Callable[[Records, Sequence[Outcome]], str]


def request_codec(header: str | None) -> tuple[Codec, str]:
    """What reads a body of this Content-Type, and Python's name of its charset; no header means JSON in UTF-8.
    ServeError (415) if nothing does.
    """
    media_type, parameters = split(header or "")
    codec = CODECS.get(media_type or JSON)
    if codec is None:
        raise ServeError(
            Kind.UNSUPPORTED_MEDIA_TYPE, f"Content-Type `{media_type[:80]}` can't be read: send {_any_of(CODECS)}"
        )
    return codec, encoding_of(parameters)


def answer_codec(accept: str | None, requested: Codec, default: str | None = None) -> Codec:
    """What writes an answer that a client takes by its Accept header: of those that it wants equally the type
    `default`, else the one that it sent. ServeError (406) if nothing does.
    """
    first = CODECS.get(default or "", requested)
    if not accept or not accept.strip():
        return first
    best = best_of(accept, [first.media_type, *(each for each in CODECS if each != first.media_type)])
    if best is None:
        sentence = f"Accept `{accept.strip()[:80]}` can't be served: accept {_any_of(CODECS)}"
        raise ServeError(Kind.NOT_ACCEPTABLE, sentence)
    return CODECS[best]


def text_of(body: bytes, encoding: str, media_type: str = JSON) -> str:
    """The text of a body; ServeError (400) if it is empty, with what that type holds, or in another charset than it
    says.
    """
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as error:
        name = "UTF-8" if encoding.startswith("utf-8") else encoding
        sentence = f"the body is not {name} (byte {error.start} of {len(body)}): send it in UTF-8"
        raise ServeError(Kind.BAD_REQUEST, sentence) from error
    if not text.strip():
        raise ServeError(Kind.BAD_REQUEST, f"the body is empty: {_WANTED[media_type]}")
    return text


def _read_json(text: str) -> Records:
    return Records([decode(text, "the body", f"send a request a line as `{JSON_LINES}`")], separate=False, header=True)


def _write_json(records: Records, outcomes: Sequence[Outcome]) -> str:
    values = [_error_or(each) for each in outcomes]
    return dump(values if records.separate else values[0])


def _read_json_lines(text: str) -> Records:
    # By line feeds alone: JSON may hold what else Python takes for the end of a line as itself.
    lines = (line for line in text.split("\n") if line.strip())
    return Records([_decode_line(line) for line in lines], separate=True)


def _decode_line(line: str) -> Any:
    try:
        return decode(line, "the line")
    except ServeError as error:
        return ServeError(error.kind, error.message)  # without the traceback, which holds what was made on the way


def _write_json_lines(records: Records, outcomes: Sequence[Outcome]) -> str:
    return "".join(f"{dump(_error_or(each))}\n" for each in _lines(records, outcomes))


def _read_csv(text: str) -> Records:
    """RFC 4180. A first line that names both columns says where they are, and others are passed over; without one the
    columns are question and context.
    """
    rows = csv_rows(text)
    names = [name.strip().lower() for name in rows[0]]
    named = [name for name in _QUESTION if name in names]
    if not named:
        return Records([_csv_value(row, None, (0, 1)) for row in rows], separate=True)
    if len(named) == 1:
        sentence = f"the first row names the column `{named[0]}` alone: name both, `question` and `context`, or none"
        raise ServeError(Kind.BAD_REQUEST, sentence)
    if not rows[1:]:
        raise ServeError(Kind.BAD_REQUEST, "the body has no row but the names of its columns: send a question a row")
    places = (names.index("question"), names.index("context"))
    return Records([_csv_value(row, len(names), places) for row in rows[1:]], separate=True, header=True)


def csv_rows(text: str) -> list[list[str]]:
    """The rows that are not blank; ServeError (400) with the line where a quote stays open, or is one too many."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows: list[list[str]] = []
    begin = 1
    try:
        for row in reader:
            if row:
                rows.append(row)
            begin = reader.line_num + 1
    except csv.Error as error:
        if str(error) == "unexpected end of data":
            fault = f"in the row that begins at line {begin} a double quote stays open"
        else:
            fault = f"{error} at line {reader.line_num}"
        advice = "put a text into double quotes whole, and write a double quote that is part of it twice"
        raise ServeError(Kind.BAD_REQUEST, f"the body is not CSV ({fault}): {advice}") from error
    return rows


def _csv_value(row: Sequence[str], named: int | None, places: tuple[int, int]) -> Any:
    """The question of a row; `named`: how many columns the first row names, if it names them."""
    columns = named or len(_QUESTION)
    if len(row) != columns:
        has = f"the row has {len(row)} column{'s' if len(row) > 1 else ''}"
        wanted = f"{named}, those of the first row" if named else "2, question and context"
        quotes = "; a text with commas stands in double quotes" if len(row) > columns else ""
        return ServeError(Kind.BAD_REQUEST, f"{has}: it must have {wanted}, separated by commas{quotes}")
    return {"inputs": {name: row[place] for name, place in zip(_QUESTION, places, strict=True)}}


def _write_csv(records: Records, outcomes: Sequence[Outcome]) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, _ANSWER, lineterminator="\r\n")
    if records.header:
        writer.writeheader()
    for outcome in _lines(records, outcomes):
        writer.writerow(_csv_row(outcome, records))
    return text.getvalue()


def _csv_row(outcome: Outcome, records: Records) -> dict[str, Any]:
    if isinstance(outcome, list):
        error = ServeError(Kind.NOT_ACCEPTABLE, "a list of answers has no row of CSV: accept `application/jsonlines`")
        if not records.separate:
            raise error
        outcome = error
    return {"error": outcome.message} if isinstance(outcome, ServeError) else outcome


def _lines(records: Records, outcomes: Sequence[Outcome]) -> Iterator[Outcome]:
    """An outcome a line: of one record that asked for a list, an element a line."""
    if records.separate or not isinstance(outcomes[0], list):
        yield from outcomes
    else:
        yield from outcomes[0]


def _error_or(outcome: Outcome) -> Any:
    return outcome.body() if isinstance(outcome, ServeError) else outcome


def _any_of(names: Iterable[str]) -> str:
    *head, last = (f"`{name}`" for name in names)
    return f"{', '.join(head)} or {last}"


CODECS = {
    codec.media_type: codec
    for codec in (
        Codec(JSON, _read_json, _write_json),
        Codec(JSON_LINES, _read_json_lines, _write_json_lines),
        Codec(CSV, _read_csv, _write_csv),
    )
}
