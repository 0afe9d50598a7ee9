"""The media types that the server reads and writes: a table with one row per type.

A JSON body is one record; an error in it decides the status of the response. JSON lines and CSV have a record per line,
and answers keep their order. The error of one record does not affect the others: it is the object that is the body of a
refused request, or in CSV the column `error`. Records are counted before the first is decoded.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from berth.serve.errors import Kind, ServeError
from berth.serve.limits import RequestLimits
from berth.serve.questions import near_misses
from berth.serve.questions.csv_questions import read_csv
from berth.serve.questions.json_text import decode, dump
from berth.serve.questions.records import Records, check_bytes

UTF_8 = ("utf-8", "utf8", "us-ascii", "ascii")
"""Names of the accepted charset in headers."""


def split(header: str) -> tuple[str, dict[str, str]]:
    """One media type with its parameters, names in lower case: 'A/B; Q="1"' → ('a/b', {'q': '1'})."""
    media_type, *parts = header.split(";")
    parameters = {}
    for part in parts:
        name, _, value = part.partition("=")
        parameters[name.strip().lower()] = value.strip().strip('"')
    return media_type.strip().lower(), parameters


def best_of(accept: str, offered: Sequence[str]) -> str | None:
    """The first type of an Accept header that is offered; for a wildcard, the first offered type that it matches. None
    if nothing matches. Weights (`q`) are ignored.
    """
    for item in accept.split(","):
        accepted, _ = split(item)
        for media_type in offered:
            if accepted in (media_type, f"{media_type.partition('/')[0]}/*", "*/*", "*"):
                return media_type
    return None


JSON, JSON_LINES, CSV = "application/json", "application/jsonlines", "text/csv"
_ANSWER = ("score", "start", "end", "answer", "error")
# A line that is not blank, from its first character. A byte order mark before it comes from files that were joined.
_LINE = re.compile(r"[^ \t\r\n\ufeff][^\n]*")

Outcome = Any
"""The result of a record: a JSON value, or ServeError."""


@dataclass(frozen=True, slots=True)
class Codec:
    """A media type. `read` turns a text into records; ServeError if it can't be read or has too many. `write` turns
    outcomes into a text; ServeError if this type can't express them. wanted: advice for an empty body.
    """

    media_type: str
    wanted: str
    read: Callable[[str, RequestLimits], Records]
    write: Callable[[Records, Sequence[Outcome]], str]


def request_codec(header: str | None) -> Codec:
    """The codec for this Content-Type; no header means JSON. ServeError (415) for an unknown type or charset."""
    media_type, parameters = split(header or "")
    codec = CODECS.get(media_type or JSON)
    if codec is None:
        advice = near_misses.MEDIA_TYPES.get(media_type) or f"send {_any_of(CODECS)}"
        raise ServeError(Kind.UNSUPPORTED_MEDIA_TYPE, f"Content-Type `{media_type[:80]}` can't be read: {advice}")
    check_charset(parameters)
    return codec


def check_charset(parameters: Mapping[str, str]) -> None:
    """ServeError (415) if a Content-Type's parameters name a charset other than UTF-8 or ASCII."""
    charset = parameters.get("charset", "utf-8")
    if charset.lower() not in UTF_8:
        raise ServeError(Kind.UNSUPPORTED_MEDIA_TYPE, f"charset `{charset[:80]}` can't be read: send UTF-8")


def answer_codec(accept: str | None, requested: Codec, default: str | None = None) -> Codec:
    """The codec for a client's Accept header; without the header, that of the type `default`, else that of the request.

    ServeError (406) if no type matches.
    """
    first = CODECS.get(default or "", requested)
    if not accept or not accept.strip():
        return first
    best = best_of(accept, [first.media_type, *(each for each in CODECS if each != first.media_type)])
    if best is None:
        sentence = f"Accept `{accept.strip()[:80]}` can't be served: accept {_any_of(CODECS)}"
        raise ServeError(Kind.NOT_ACCEPTABLE, sentence)
    return CODECS[best]


def text_of(body: bytes, media_type: str = JSON, *, blank: bool = False) -> str:
    """The text of a body without a byte order mark; ServeError (400) if it is empty or not UTF-8.

    `blank`: it may be empty. In a type with many records, invalid bytes become characters that `check_bytes` finds.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        advice = near_misses.of_bytes(body)
        if media_type == JSON or advice:
            sentence = f"the body is not UTF-8 (byte {error.start} of {len(body)}): {advice or 'send it in UTF-8'}"
            raise ServeError(Kind.BAD_REQUEST, sentence) from error
        text = body.decode("utf-8-sig", "surrogateescape")
    if not blank and (not text or text.isspace()):
        raise ServeError(Kind.BAD_REQUEST, f"the body is empty: {CODECS[media_type].wanted}")
    return text


def _read_json(text: str, limits: RequestLimits) -> Records:
    return Records(map(_decode_json, [text], [limits]), separate=False, header=True)


def _decode_json(text: str, limits: RequestLimits) -> Any:
    if len(text) > limits.record_characters:
        raise limits.record_too_long(len(text))
    return decode(text, "the body", f"send a request a line as `{JSON_LINES}`")


def _write_json(records: Records, outcomes: Sequence[Outcome]) -> str:
    _refuse_header_only(records)
    values = [_error_or(each) for each in outcomes]
    return dump(values if records.separate else values[0])


def _read_json_lines(text: str, limits: RequestLimits) -> Records:
    # Only line feeds end a line: the other characters that str.splitlines() splits at may be part of JSON.
    count = 0
    for count, _ in enumerate(_LINE.finditer(text), start=1):
        limits.check_records(count)
    _refuse_one_value(text, limits)
    return Records((_decode_line(each, limits) for each in _LINE.finditer(text)), separate=True, count=count)


def _refuse_one_value(text: str, limits: RequestLimits) -> None:
    """ServeError (400) if the text is one JSON value over several lines."""
    first = _LINE.search(text)
    if first is None or first[0].rstrip() not in ("{", "[") or len(text) > limits.record_characters:
        return
    try:
        decode(text, "the body")
    except ServeError:
        return
    raise ServeError(
        Kind.BAD_REQUEST,
        f"the body is one JSON value over several lines: send it as `{JSON}`, or each request on a line",
    )


def _decode_line(line: re.Match[str], limits: RequestLimits) -> Any:
    characters = line.end() - line.start()
    if characters > limits.record_characters:
        return limits.record_too_long(characters)
    try:
        check_bytes(line[0], "line")
        return decode(line[0], "the line")
    except ServeError as error:
        return error


def _refuse_header_only(records: Records) -> None:
    """ServeError (406) for a CSV with only a row of column names, to which JSON has no answer."""
    if records.header and not records.count:
        raise ServeError(
            Kind.NOT_ACCEPTABLE,
            f"the body has only a row of column names, as a batch transform with BatchStrategy SingleRecord sends "
            f"them: accept `{CSV}`, or remove that row from the file",
        )


def _write_json_lines(records: Records, outcomes: Sequence[Outcome]) -> str:
    _refuse_header_only(records)
    return "".join(f"{dump(_error_or(each))}\n" for each in _lines(records, outcomes))


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
        error = ServeError(Kind.NOT_ACCEPTABLE, "a list of answers is not a row of CSV: accept `application/jsonlines`")
        if not records.separate:
            raise error
        outcome = error
    return {"error": outcome.message} if isinstance(outcome, ServeError) else outcome


def _lines(records: Records, outcomes: Sequence[Outcome]) -> Iterator[Outcome]:
    """One outcome per line. If the only record of a body asked for a list, one element per line."""
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
        Codec(JSON, f"send {near_misses.OBJECT}", _read_json, _write_json),
        Codec(JSON_LINES, f"send a request a line, such as {near_misses.OBJECT}", _read_json_lines, _write_json_lines),
        Codec(CSV, 'send a question a row, such as "…question…","…context…"', read_csv, _write_csv),
    )
}
