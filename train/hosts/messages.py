"""The messages between hosts. A message is one line of JSON: an object with its `kind` and that kind's fields.

Anyone who can reach the port can send a line, so the type of each field is checked. Unknown fields are ignored.

This uses only the standard library: the entry must start even if the user has installed another version of pydantic.
"""

import json
from collections.abc import Mapping
from typing import Any

MAX_LINE_BYTES = 256 * 1024


class WireError(Exception):
    """The other side closed the connection, timed out, or sent a line that is not a message."""


# What a field may be: a range of integers, an object (dict), one of several (tuple), or a type; see `_fits`.
# FailureReport.from_fields limits the lengths of a report's texts. `age`: seconds since the failure showed.
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
    """The line of a message. Characters that UTF-8 can't encode (from a file name) become `?`."""
    return json.dumps({"kind": kind, **fields}, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def decode(line: bytes) -> tuple[str, dict[str, Any]]:
    """Kind and fields of a line. WireError if it is not a message."""
    try:
        message = json.loads(line.decode())
    except (ValueError, RecursionError):
        # RecursionError: a line can contain a hundred thousand nested brackets.
        raise WireError("a message was not JSON") from None
    kind = message.get("kind") if isinstance(message, dict) else None
    if not isinstance(kind, str) or kind not in _KINDS:
        raise WireError("a message was of an unknown kind")
    for name, expected in _KINDS[kind].items():
        if name not in message or not _fits(message[name], expected):
            raise WireError(f"a message {kind} was invalid: its {name} is missing or wrong")
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
    if expected is str:  # printed into logs and ssh's files, so it must be a single line
        return isinstance(value, str) and value.isprintable()
    return value is None if expected is None else isinstance(value, expected)
