"""What hosts may say to each other, and the one reader that lets nothing else in.

A message is one line of JSON: an object with its `kind` and that kind's fields. Whoever reaches a port can send a line,
so each is read strictly: known kinds, every field of its type, numbers finite and in range, texts of bounded length.
Fields that a kind does not have are dropped, for another version of the kit may send some, and is to be told so.

By the standard library alone: the entry must start in an image whose user installed any other pydantic.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from berth.train import failure
from berth.train.failures.sentence import SENTENCE_CHARACTERS

MAX_LINE_BYTES = 256 * 1024

FROM_WORKER = frozenset({"beat", "keys", "ready", "stop", "stop_at_once", "done", "bye"})
FROM_LEADER = frozenset({"beat", "welcome", "keys", "stop", "stop_at_once", "ended", "outcome"})


class WireError(Exception):
    """The other side closed, fell silent or sent something that is no message."""


# Reads a field's value, or raises ValueError with the words for what it should have been.
Reader = Callable[[Any], Any]


def _text(most: int, *, printable: bool = True) -> Reader:
    """A text; `printable`: it goes into logs and files as it is, so no line ends or control characters either."""

    def read(value: Any) -> str:
        # A lone surrogate, which JSON can spell, can be written to no file.
        if not isinstance(value, str) or len(value) > most or not _encodable(value):
            raise ValueError(f"a text of at most {most} characters")
        if printable and not value.isprintable():
            raise ValueError("a text of one line")
        return value

    return read


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _whole(least: int, most: int) -> Reader:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(f"a whole number from {least} to {most}")
        return value

    return read


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e10:
        raise ValueError("a number of seconds")
    return float(value)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _port(value: Any) -> str:
    if not isinstance(value, str) or not (value.isascii() and value.isdigit()) or not 0 < int(value[:6]) < 65536:
        raise ValueError("the text of a port's number")
    return value


def _optional(read: Reader) -> Reader:
    return lambda value: None if value is None else read(value)


def _several(most: int, read: Reader) -> Reader:
    def read_all(value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) > most:
            raise ValueError(f"a list of at most {most}")
        return [read(each) for each in value]

    return read_all


def _fields(readers: Mapping[str, Reader], missing: Mapping[str, Any] | None = None) -> Reader:
    """An object with these fields. `missing`: what is taken for a field that is not there."""

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError("an object")
        found = {**(missing or {}), **value}
        for name in readers:
            if name not in found:
                raise ValueError(f"an object with the field {name}")
        return {name: _named(name, reader, found[name]) for name, reader in readers.items()}

    return read


def _named(name: str, read: Reader, value: Any) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise _FieldError(f"its {name} was not {error}") from None


class _FieldError(Exception):
    """A field of a message is not what it should be; the message names it."""


# The bounds of berth.train.failure, which cuts what it sends. `age`: how many seconds before it was sent it showed.
_REPORT = _fields(
    {
        "sentence": _text(SENTENCE_CHARACTERS, printable=False),
        "code": _whole(0, 255),
        "host": _text(255),
        "rank": _optional(_whole(0, 1 << 31)),
        "detail": _several(failure.DETAIL_LINES, _text(failure.LINE_CHARACTERS, printable=False)),
        "age": _seconds,
        "echo": _truth,
        "written": _truth,
        "signalled": _truth,
    }
)
_OUTCOME = _fields(
    {"code": _whole(0, 255), "report": _optional(_REPORT), "leaves_model": _truth}, {"leaves_model": True}
)
_KINDS: Mapping[str, Reader] = {
    "hello": _fields(
        {
            "host": _text(255),
            "ranks": _whole(0, 1 << 16),
            "host_key": _text(1024),
            "ssh_port": _whole(0, 65535),
            "version": _text(64),
            "backend": _text(64),
        },
        # A version of the kit that says none is to be told as another version.
        {"backend": ""},
    ),
    # A version of the kit that says none is to be told as another version.
    "joined": _fields({"silence": _seconds}, {"silence": 0.0}),
    "refused": _fields({"reason": _text(2000)}),
    "beat": _fields({}),
    "welcome": _fields({"key": _text(1024), "master_port": _port}),
    "keys": _fields({"host_key": _text(1024), "client_key": _text(1024)}),
    "ready": _fields({}),
    "stop": _fields({"number": _whole(1, 64)}),
    "stop_at_once": _fields({"number": _whole(1, 64)}),
    "done": _OUTCOME,
    "ended": _fields({}),
    "outcome": _OUTCOME,
    "bye": _fields({}),
}


def encode(kind: str, fields: Mapping[str, Any]) -> bytes:
    """A message as its line. What a text cannot be written with (a file name that is no UTF-8) becomes `?`."""
    return json.dumps({"kind": kind, **fields}, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def decode(line: bytes) -> tuple[str, dict[str, Any]]:
    """Kind and fields of a line. Raises WireError, with a sentence's worth of reason, for anything but a message."""
    try:
        message = json.loads(line.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        # RecursionError: a line holds room for a hundred thousand brackets.
        raise WireError("a message was not JSON") from None
    kind = message.get("kind") if isinstance(message, dict) else None
    if not isinstance(kind, str):
        raise WireError("a message had no kind")
    if kind not in _KINDS:
        raise WireError("a message was of no known kind")
    try:
        fields: dict[str, Any] = _KINDS[kind](message)
    except (ValueError, _FieldError) as error:
        raise WireError(f"a message {kind} made no sense: {_sentence(error)}") from None
    return kind, fields


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _sentence(error: Exception) -> str:
    return str(error) if isinstance(error, _FieldError) else f"it was not {error}"
