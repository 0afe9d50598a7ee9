"""What a text that can't be read seems to be, and what to send in its place.

Each of these is what a client sends that is nearly right: a form of curl's, a value in another server's wrapping, CSV
as JSON. The answers are ends of sentences about the text.
"""

import re

OBJECT = '{"inputs": {"question": "…", "context": "…"}}'
OTHER_NAMES = {
    **dict.fromkeys(("query", "q", "questions"), "question"),
    **dict.fromkeys(("passage", "text", "document", "paragraph", "contexts"), "context"),
}
"""What others call the two texts of a question."""
_LOOKED_AT = 1000
"""Characters at the begin of a text."""

_TEXTS = tuple(
    (re.compile(pattern), advice)
    for pattern, advice in (
        (r"""b['"]""", "it is Python's text of a bytes object: send the bytes themselves"),
        (r"--[^\s]{1,70}\r?\n", "it is a form of several parts (multipart): send the JSON object as the whole body"),
        (r"[\w.%-]{1,60}=", f"it is a form: send the JSON object itself, such as {OBJECT} (curl: --data '{{…}}')"),
        (r"%7[Bb]|%22", "it is percent-encoded: send the JSON text itself"),
        (r"eyJ[\w+/=-]+$", "it is Base64: send the JSON text itself"),
        (r"<", f"it is XML or HTML: send {OBJECT}"),
        (r"[^{\[\n,]+,", "if it is CSV, send it with Content-Type text/csv"),
    )
)
# What JSON begins with, and a row of CSV does not: there a quote opens at the begin of a cell.
_JSON_BEGIN = re.compile(r'\s*[\[{]\s*(?:[\[{]\s*)?"')


_TYPES = {
    "application/x-www-form-urlencoded": "send the JSON object itself (curl: -H 'Content-Type: application/json')",
    "multipart/form-data": "send the JSON object as the whole body, with Content-Type application/json",
    "application/json-lines": "send `application/jsonlines`",
    "application/x-jsonlines": "send `application/jsonlines`",
    "application/x-ndjson": "send `application/jsonlines`",
    "application/ndjson": "send `application/jsonlines`",
    "application/csv": "send `text/csv`",
    "text/json": "send `application/json`",
}


def of_type(media_type: str) -> str:
    """What to send in place of a type that is not read; empty for one that nobody takes for another."""
    return _TYPES.get(media_type, "")


def of_text(text: str) -> str:
    """What a whole text seems to be that is not JSON; empty if it could be anything."""
    begin = text[:_LOOKED_AT].strip()
    return next((advice for pattern, advice in _TEXTS if pattern.match(begin)), "")


def begins_as_json(text: str) -> bool:
    """Whether a text that was sent as CSV begins as JSON does."""
    return _JSON_BEGIN.match(text) is not None


def of_bytes(body: bytes) -> str:
    """What to do about a body that is not UTF-8, by what it seems to be; empty if it may be text with some
    other bytes in it.
    """
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "it is UTF-16: send it in UTF-8"
    if body.startswith(b"\x1f\x8b"):
        return "it is compressed by gzip: send the text itself"
    if body.startswith(b"PK\x03\x04"):
        return "it is a zip archive: send the text itself"
    return ""
