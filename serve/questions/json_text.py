"""Reads and writes strict JSON (RFC 8259): NaN and Infinity are errors."""

import json
from collections.abc import Callable
from typing import Any, NoReturn

from berth.serve.errors import Kind, ServeError
from berth.serve.questions import near_misses


def decode(text: str, what: str, many: str = "") -> Any:
    """The JSON value in `text`; ServeError (400) with the place of the mistake. `what`: the text's name in the error;
    `many`: the advice if the first line is a value by itself and more lines follow.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}" if "\n" in text else f"column {error.colno}"
        advice = _advice(error, many)
        sentence = f"{what} is not JSON ({error.msg.removesuffix(' at')} at {place})"
        raise ServeError(Kind.BAD_REQUEST, f"{sentence}: {advice}" if advice else sentence) from error
    # for NaN and Infinity, a number of thousands of digits, or thousands of brackets
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ServeError(Kind.BAD_REQUEST, f"{what} is not JSON that can be read ({reason})") from error


def _advice(error: json.JSONDecodeError, many: str) -> str:
    """Advice about a common mistake, as the end of a sentence; empty if the text is none of them."""
    begin = error.doc[: error.pos]
    if error.msg == "Extra data" and many and begin.rstrip(" \t\r").endswith("\n"):
        return many
    # CSV such as `2024,…` fails with "Extra data", because its first number is valid JSON.
    return near_misses.of_text(error.doc) if not begin.strip() or error.msg == "Extra data" else ""


def dump(value: Any, plain: Callable[[Any], Any] | None = None) -> str:
    """`value` as JSON on one line, without escapes for characters outside ASCII. ValueError for NaN and infinity.
    `plain` converts values of other types.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, default=plain)


def encode(text: str) -> bytes:
    """A response's bytes in UTF-8. A lone surrogate stays the escape that it was in the request: JSON has an escape for
    it, UTF-8 has no encoding.
    """
    return text.encode("utf-8", "backslashreplace")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value: write null or a number")
