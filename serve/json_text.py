"""JSON as text and back, as RFC 8259 has it and no more."""

import json
from collections.abc import Callable
from typing import Any, NoReturn

from berth.serve import near_misses
from berth.serve.errors import Kind, ServeError


def decode(text: str, what: str, many: str = "") -> Any:
    """The JSON value in `text`, which the sentence of ServeError (400) calls `what`, and says where it is wrong; `many`
    says what to do with a text whose first line is a value, and more lines follow.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}" if "\n" in text else f"column {error.colno}"
        advice = _advice(error, many)
        sentence = f"{what} is not JSON ({error.msg.removesuffix(' at')} at {place})"
        raise ServeError(Kind.BAD_REQUEST, f"{sentence}: {advice}" if advice else sentence) from error
    # NaN and Infinity, a number of thousands of digits, thousands of brackets
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ServeError(Kind.BAD_REQUEST, f"{what} is not JSON that can be read ({reason})") from error


def _advice(error: json.JSONDecodeError, many: str) -> str:
    """What to do about a mistake that many make, as the end of a sentence."""
    begin = error.doc[: error.pos]
    if error.msg == "Extra data" and many and begin.rstrip(" \t\r").endswith("\n"):
        return many
    # "Extra data" as in `2024,…`, of which the number is JSON.
    return near_misses.of_text(error.doc) if not begin.strip() or error.msg == "Extra data" else ""


def dump(value: Any, plain: Callable[[Any], Any] | None = None) -> str:
    """`value` on one line, characters as themselves. NaN and infinity are a ValueError: they are no JSON. `plain` makes
    JSON's values of others.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=plain)


def encode(text: str) -> bytes:
    """A response's bytes in UTF-8. A lone surrogate, which JSON can carry as an escape but UTF-8 can't carry at all,
    goes out as the escape that it came in as.
    """
    return text.encode("utf-8", "backslashreplace")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value: write null or a number")
