"""Parses requests to a multi-model endpoint: a model by name and folder, or a page of the list of models."""

import re

from berth.serve.errors import Kind, ServeError
from berth.serve.questions.json_text import decode

PAGE, LARGEST_PAGE = 100, 1000
"""Models on a page of their list: by default, and at most."""
_EXAMPLE = '{"model_name": "…", "url": "/opt/ml/models/…"}'
_NAME = re.compile(r"(?!\.)[\w.-]{1,1024}", re.ASCII)


def requested_model(body: bytes) -> tuple[str, str]:
    """The name and folder in a body of POST /models; ServeError (400) with all mistakes."""
    if not body.strip():
        raise ServeError(Kind.BAD_REQUEST, f"the body is empty: send {_EXAMPLE}")
    value = decode(body.decode("utf-8", "replace"), "the body")
    if not isinstance(value, dict):
        raise ServeError(Kind.BAD_REQUEST, f"the body must be {_EXAMPLE}")
    faults = [
        f"`{field}` is missing: it must be a string"
        for field in ("model_name", "url")
        if not isinstance(value.get(field), str) or not value[field]
    ]
    if faults:
        raise ServeError(Kind.BAD_REQUEST, "; ".join(faults))
    return value["model_name"], value["url"]


def check_name(name: str) -> None:
    """ServeError (400) if a model's name is invalid."""
    if not _NAME.fullmatch(name):
        rule = "1 to 1024 letters, digits, `_`, `-` and `.`, and not begin with `.`"
        raise ServeError(Kind.BAD_REQUEST, f"`model_name` is `{name[:80]}`: it must be {rule}")


def page_size(limit: str | None) -> int:
    """The number of models on a page; ServeError (400) if `limit` is invalid."""
    if limit is None:
        return PAGE
    size = int(limit) if limit.isdecimal() and len(limit) <= len(str(LARGEST_PAGE)) else 0
    if not 1 <= size <= LARGEST_PAGE:
        raise ServeError(Kind.BAD_REQUEST, f"`limit` must be a whole number from 1 to {LARGEST_PAGE}")
    return size
