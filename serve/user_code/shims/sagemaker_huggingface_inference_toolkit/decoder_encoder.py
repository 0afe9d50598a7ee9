"""The toolkit's functions by its names; types and results are those of the handler's default functions."""

from typing import Any

from berth.serve.codecs import JSON
from berth.serve.user_code.defaults import decode_body, encode_prediction


def decode(content: bytes | str, content_type: str = JSON) -> Any:
    """What a request's body holds."""
    return decode_body(content.encode() if isinstance(content, str) else content, content_type)


def encode(content: Any, content_type: str = JSON) -> bytes | str:
    """A response's body: text for JSON and CSV, as in the toolkit, else bytes."""
    body, media_type = encode_prediction(content, content_type)
    return body if media_type == "application/x-npy" else body.decode()
