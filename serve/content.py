"""Types in and out: which Content-Type is read, which Accept is served, bytes to JSON and back.

The server speaks `application/json` in UTF-8 and nothing else. It reads headers as real clients send them: with a
charset parameter, with lists, q-values and wildcards, in any case, or not at all (boto3 sends no Content-Type unless
told to).
"""

import json
from typing import NoReturn

from berth.serve.errors import Kind, ServeError

JSON = "application/json"
# A fixed set: `codecs.lookup` keeps every name that it does not know in memory, and looks for it in the file system.
CHARSETS = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})


def _split(header: str) -> tuple[str, dict[str, str]]:
    """One media type with its parameters, names in lower case: 'A/B; Q="1"' → ('a/b', {'q': '1'})."""
    media_type, *parts = header.split(";")
    parameters = {}
    for part in parts:
        name, _, value = part.partition("=")
        parameters[name.strip().lower()] = value.strip().strip('"')
    return media_type.strip().lower(), parameters


def check_content_type(header: str | None) -> None:
    """Pass if a body of this Content-Type can be read; a missing one means JSON. ServeError (415) otherwise."""
    media_type, parameters = _split(header or "")
    if media_type not in ("", JSON):
        raise ServeError(Kind.UNSUPPORTED_MEDIA_TYPE, f"Content-Type `{media_type}` can't be read: send `{JSON}`")
    charset = parameters.get("charset", "utf-8")
    if charset.lower() not in CHARSETS:
        raise ServeError(Kind.UNSUPPORTED_MEDIA_TYPE, f"charset `{charset}` can't be read: send JSON in UTF-8")


def check_accept(header: str | None) -> None:
    """Pass if the client takes JSON by this Accept header; missing or empty takes anything. ServeError (406) otherwise.

    The most specific of `application/json`, `application/*` and `*/*` decides (RFC 9110, section 12.5.1); q=0 means
    "not this one".
    """
    if not header or not header.strip():
        return
    quality: dict[str, float] = {}
    for item in header.split(","):
        media_type, parameters = _split(item)
        try:
            q = float(parameters.get("q", "1"))
        except ValueError:  # a malformed q must not cost the client its answer
            q = 1.0
        quality[media_type] = max(q, quality.get(media_type, 0.0))
    for media_type in (JSON, "application/*", "*/*", "*"):
        if media_type in quality:
            if quality[media_type] > 0:
                return
            break
    raise ServeError(Kind.NOT_ACCEPTABLE, f"Accept `{header.strip()}` can't be served: accept `{JSON}`")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


def decode(body: bytes | str) -> object:
    """The JSON value in `body` (bytes in UTF-8, with or without a byte order mark). ServeError (400) says where."""
    if not body.strip():
        raise ServeError(Kind.BAD_REQUEST, 'the body is empty: send {"inputs": {"question": "…", "context": "…"}}')
    try:
        text = body if isinstance(body, str) else body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ServeError(
            Kind.BAD_REQUEST, f"the body is not UTF-8 (byte {error.start} of {len(body)}): send JSON in UTF-8"
        ) from error
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ServeError(
            Kind.BAD_REQUEST, f"the body is not JSON ({error.msg.removesuffix(' at')} at {place})"
        ) from error
    except (
        ValueError,
        RecursionError,
    ) as error:  # NaN and Infinity, a number of thousands of digits, thousands of brackets
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ServeError(Kind.BAD_REQUEST, f"the body is not JSON that can be read ({reason})") from error


def encode(value: object) -> bytes:
    """`value` as JSON in UTF-8, characters written as themselves.

    A lone surrogate, which JSON can carry as an escape but UTF-8 can't carry at all, goes out as the escape it came in
    as. NaN and infinity are a ValueError: they are no JSON.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace")
