"""Functions with the toolkit's names; their types and results are those of a handler's default functions."""

from typing import Any

from berth.serve.questions.codecs import JSON
from berth.serve.user_code.defaults import decode_body, encode_prediction


def decode(content: bytes | str, content_type: str = JSON) -> Any:
    """The value of a request's body."""
    return decode_body(content.encode() if isinstance(content, str) else content, content_type)


def encode(content: Any, content_type: str = JSON) -> bytes | str:
    """A response's body: bytes for .npy, text for all other types, as in the toolkit."""
    body, media_type = encode_prediction(content, content_type)
    return body if media_type == "application/x-npy" else body.decode()
