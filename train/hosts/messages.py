"""What hosts may say to each other. A message is one line of JSON: an object with its `kind` and that kind's fields.

Whoever reaches a port can send a line, so each field must be of its type. Other fields are ignored.

By the standard library alone: the entry must start in an image whose user installed any other pydantic.
"""

import json
from collections.abc import Mapping
from typing import Any

MAX_LINE_BYTES = 256 * 1024


class WireError(Exception):
    """The other side closed, fell silent or sent something that is not a message."""


# A field is a range of whole numbers, an object, a choice of several, or a type; see `_fits`. The lengths of a report's
# texts are those that FailureReport.from_fields cuts them to. `age`: seconds since the failure showed.
_REPORT = {
    "sentence": object,
    "code": range(256),
    "host": str,
    "rank": (None, range(1 << 31)),
    "detail": list,
    "age": float,
    "echo": bool,
    "written": bool,
    "signalled": bool,
}
_OUTCOME = {"code": range(256), "report": (None, _REPORT), "leaves_model": bool}
_KINDS: Mapping[str, Mapping[str, Any]] = {
    "hello": {
        "host": str,
        "ranks": range(1 << 16),
        "host_key": str,
        "client_key": str,
        "ssh_port": range(1 << 16),
        "version": str,
        "backend": str,
    },
    "joined": {"silence": float},
    "refused": {"reason": str},
    "beat": {},
    "welcome": {"host_key": str, "client_key": str, "master_port": range(1 << 16)},
    "ready": {},
    "stop": {"number": range(1, 65), "count": range(1, 3)},
    "done": _OUTCOME,
    "ended": {},
    "outcome": _OUTCOME,
    "bye": {},
}


def encode(kind: str, fields: Mapping[str, Any]) -> bytes:
    """A message as its line. Characters that UTF-8 does not have (of a file name) become `?`."""
    return json.dumps({"kind": kind, **fields}, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def decode(line: bytes) -> tuple[str, dict[str, Any]]:
    """Kind and fields of a line. Raises WireError for anything but a message."""
    try:
        message = json.loads(line.decode())
    except (ValueError, RecursionError):
        # RecursionError: a line has room for a hundred thousand brackets.
        raise WireError("a message was not JSON") from None
    kind = message.get("kind") if isinstance(message, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise WireError("a message was of no known kind")
    for name, expected in _KINDS[kind].items():
        if name not in message or not _fits(message[name], expected):
            raise WireError(f"a message {kind} made no sense: its {name} is missing or wrong")
    return kind, {name: message[name] for name in _KINDS[kind]}


def _fits(value: Any, expected: Any) -> bool:
    if isinstance(expected, range):
        return type(value) is int and value in expected
    if isinstance(expected, tuple):
        return any(_fits(value, choice) for choice in expected)
    if isinstance(expected, dict):
        return isinstance(value, dict) and all(
            name in value and _fits(value[name], expected[name]) for name in expected
        )
    if expected is float:
        return type(value) in (int, float) and 0 <= value < 1e10
    if expected is str:  # these go into logs and ssh's files, so they are single lines
        return isinstance(value, str) and value.isprintable()
    return value is None if expected is None else isinstance(value, expected)
