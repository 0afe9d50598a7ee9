"""Responses in JSON, and the net that turns every error into the one body shape."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response

from berth.serve.codecs import JSON
from berth.serve.errors import Kind, ServeError, foreseen
from berth.serve.json_text import dump, encode

log = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]


def json_response(status: int, value: object, headers: Mapping[str, str] | None = None) -> Response:
    """`value` as a body."""
    return Response(encode(dump(value)), status_code=status, headers=headers, media_type=JSON)


def refusal(error: ServeError) -> Response:
    """What a client reads of an error."""
    return json_response(error.status, error.body(), error.headers())


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
