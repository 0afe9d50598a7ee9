"""The routes: GET /ping and POST /invocations, and the net that turns every error into the one body shape.

Reading and checking a request, and writing its answer, happen in a thread pool, inference in the service's own thread;
the event loop only moves bytes. So /ping is never behind the model.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from berth.serve import content
from berth.serve.errors import Kind, ServeError, foreseen
from berth.serve.service import Service

log = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]

MEBIBYTE = 1024 * 1024
MAX_BODY = 25 * MEBIBYTE  # what SageMaker passes to a real-time endpoint; batch transform names its own limit


def create_app(service: Service, max_body: int = MAX_BODY) -> ASGIApp:
    """The ASGI application over a service; bodies over `max_body` bytes get 413."""

    async def ping(_request: Request) -> Response:
        service.check_ready()
        return _json(200, {"status": "ready"})

    async def invocations(request: Request) -> Response:
        try:
            body = await _body(request, max_body)
        except ClientDisconnect:
            return Response(status_code=499)  # for the log line only: nginx's number for "client closed request"
        service.check_ready()
        accept = request.headers.get("accept")
        content.check_accept(accept)  # before the model works for an answer that can't be sent
        parsed = await run_in_threadpool(service.handler.default_input_fn, body, request.headers.get("content-type"))
        prediction = await asyncio.wrap_future(service.submit(parsed))
        written, media_type = await run_in_threadpool(service.handler.default_output_fn, prediction, accept)
        return Response(written, media_type=media_type)

    routes = [
        Route("/ping", _answering(ping), methods=["GET"]),
        Route("/invocations", _answering(invocations), methods=["POST"]),
    ]
    return _AccessLog(Starlette(routes=routes, exception_handlers={HTTPException: _no_such_route}))


def _answering(endpoint: Endpoint) -> Endpoint:
    """`endpoint`, with every exception turned into the one body shape.

    Done here and not by Starlette's own handler for exceptions, which raises them again for the server to log a second
    time.
    """

    async def answering(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:
            refusal = foreseen(error, log)
            return _json(refusal.status, refusal.body())
        except asyncio.CancelledError:  # a stop that has waited for this request for as long as it may
            refusal = ServeError(Kind.NOT_READY, "the server stops before it could answer: send the request again")
            return _json(refusal.status, refusal.body())

    return answering


async def _body(request: Request, limit: int) -> bytes:
    """The request's body; ServeError (413) over `limit` bytes.

    A body that is too large is read to its end and thrown away, so that a client that is still sending reads the answer
    instead of a broken pipe.
    """
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            chunks.clear()
        else:
            chunks.append(chunk)
    if size > limit:
        raise ServeError(
            Kind.TOO_LARGE, f"the body has {size} bytes, over the limit of {limit}: send fewer questions at once"
        )
    return b"".join(chunks)


def _json(status: int, value: object) -> Response:
    return Response(content.encode(value), status_code=status, media_type=content.JSON)


async def _no_such_route(request: Request, error: Exception) -> Response:
    """Starlette's own errors: an unknown path, or a method that a path does not take."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        refusal = ServeError(Kind.METHOD_NOT_ALLOWED, f"{request.url.path} does not take {request.method}")
    else:
        refusal = ServeError(Kind.NOT_FOUND, "no such path: this server answers GET /ping and POST /invocations")
    response = _json(refusal.status, refusal.body())
    response.headers.update(error.headers or {})
    return response


class _AccessLog:
    """One line for each request except /ping, which comes every few seconds for as long as an endpoint lives."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] == "/ping":
            await self.app(scope, receive, send)
            return
        began = time.monotonic()
        status = 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noting)
        finally:
            # The raw path is still quoted: nobody can write a line break into the log.
            path = scope.get("raw_path", b"").decode("ascii", "backslashreplace")
            log.info("%s %s %d in %.0f ms", scope["method"], path, status, 1000 * (time.monotonic() - began))
