"""Responses in JSON, and the net that turns every error into the one body shape."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from berth.serve.codecs import JSON
from berth.serve.errors import Kind, ServeError, foreseen
from berth.serve.json_text import dump, encode

log = logging.getLogger(__name__)

ERROR_TYPE = "berth.error_type"
"""Where the scope of a request that was refused has the kind of the refusal, for the log."""

Endpoint = Callable[[Request], Awaitable[Response]]


class Refusal(Response):
    """An error's body in JSON, whose kind the log tells as well: never its sentence, which may hold what was sent."""

    def __init__(self, status: int, body: bytes, headers: Mapping[str, str], error_type: str) -> None:
        super().__init__(body, status, headers, media_type=JSON)
        self.error_type = error_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ERROR_TYPE] = self.error_type
        await super().__call__(scope, receive, send)


def json_response(status: int, value: object, headers: Mapping[str, str] | None = None) -> Response:
    """`value` as a body."""
    return Response(encode(dump(value)), status_code=status, headers=headers, media_type=JSON)


def refusal(error: ServeError) -> Response:
    """What a client reads of an error."""
    return Refusal(error.status, encode(dump(error.body())), error.headers(), str(error.kind))


def with_error_bodies(endpoint: Endpoint) -> Endpoint:
    """`endpoint`, with every exception turned into the one body shape.

    Done here and not by Starlette's own handler for exceptions, which raises them again for the server to log a second
    time.
    """

    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:
            return refusal(foreseen(error, log))
        except asyncio.CancelledError:  # a stop that has waited for this request for as long as it may
            return refusal(
                ServeError(Kind.NOT_READY, "the server stops before it could answer: send the request again")
            )

    return guarded
