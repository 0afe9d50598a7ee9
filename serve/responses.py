"""Responses in JSON: values, and errors in their one shape."""

from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from berth.serve.errors import ServeError
from berth.serve.questions.codecs import JSON
from berth.serve.questions.json_text import dump, encode

ERROR_TYPE = "berth.error_type"
"""Key in the scope of a refused request; its value is the kind of the error, for the log."""


class Refusal(Response):
    """An error in JSON. The log gets its kind, but not its sentence, which may quote the client's data."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str], error_type: str) -> None:
        super().__init__(body, status, headers, media_type=JSON)
        self.error_type = error_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ERROR_TYPE] = self.error_type
        await super().__call__(scope, receive, send)


def json_response(value: object) -> Response:
    """A response with status 200 and `value` as JSON."""
    return Response(encode(dump(value)), media_type=JSON)


def refusal(error: ServeError) -> Response:
    """The response for an error."""
    return Refusal(error.status, encode(dump(error.body())), error.headers(), str(error.kind))
