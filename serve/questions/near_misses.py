"""Recognises common mistakes in a body that can't be read, with advice on what to send instead.

Examples are a form sent by curl, another server's names of the fields, or CSV sent as JSON. Every function returns the
end of a sentence about the text, or nothing.
"""

import re

OBJECT = '{"inputs": {"question": "…", "context": "…"}}'
OTHER_NAMES = {
    **dict.fromkeys(("query", "q", "questions"), "question"),
    **dict.fromkeys(("passage", "text", "document", "paragraph", "contexts"), "context"),
}
"""Other names of the two texts of a question → ours."""
_PREFIX = 1000
"""Characters of a text that are compared with the patterns."""

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
# JSON may begin like this, CSV can't: there a quote can only open at the start of a cell.
_JSON_BEGIN = re.compile(r'\s*[\[{]\s*(?:[\[{]\s*)?"')


MEDIA_TYPES = {
    "application/x-www-form-urlencoded": "send the JSON object itself (curl: -H 'Content-Type: application/json')",
    "multipart/form-data": "send the JSON object as the whole body, with Content-Type application/json",
    "application/json-lines": "send `application/jsonlines`",
    "application/x-jsonlines": "send `application/jsonlines`",
    "application/x-ndjson": "send `application/jsonlines`",
    "application/ndjson": "send `application/jsonlines`",
    "application/csv": "send `text/csv`",
    "text/json": "send `application/json`",
}
"""A media type sent by mistake → what to send instead."""


def of_text(text: str) -> str:
    """What a text that is not JSON seems to be; empty if unknown."""
    begin = text[:_PREFIX].strip()
    return next((advice for pattern, advice in _TEXTS if pattern.match(begin)), "")


def begins_as_json(text: str) -> bool:
    """Whether a text that was sent as CSV is probably JSON."""
    return _JSON_BEGIN.match(text) is not None


def of_bytes(body: bytes) -> str:
    """What a body that is not UTF-8 seems to be, and what to send; empty if unknown."""
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "it is UTF-16: send it in UTF-8"
    if body.startswith(b"\x1f\x8b"):
        return "it is compressed by gzip: send the text itself"
    if body.startswith(b"PK\x03\x04"):
        return "it is a zip archive: send the text itself"
    return ""
