"""The routes, and the net that turns every error into the one body shape.

Requests are read in a thread of the reader's, inference happens in the workers, answers are made and written in a
thread pool; the event loop only moves bytes. So /ping is never behind the model. A client that goes takes its request
with it, wherever it is, and so does the time limit.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from berth.serve.admission import Admission
from berth.serve.answering import Intake
from berth.serve.codecs import JSON
from berth.serve.errors import Kind, ServeError, foreseen
from berth.serve.json_text import dump, encode
from berth.serve.limits import RequestLimits
from berth.serve.reader import Reader
from berth.serve.service import Service
from berth.serve.settings import ServerSettings, execution_parameters

log = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]

_DEFAULTS = ServerSettings()


def create_app(service: Service, chosen: ServerSettings = _DEFAULTS) -> ASGIApp:
    """The ASGI application over a service, within its limits."""
    parameters = execution_parameters(chosen, service.pool.size)
    limits = service.limits
    admission = Admission(limits, lambda: service.pool.waiting_seconds)
    intake = Intake(Reader(), admission.unread, chosen.accept)

    async def ping(_request: Request) -> Response:
        service.check_ready()
        return _json(200, {"status": "ready", **service.summary})

    async def batch_parameters(_request: Request) -> Response:
        return _json(200, parameters)

    async def invocations(request: Request) -> Response:
        received = 0
        refusal = _refusal_now(service)  # by the time of its header: what comes before a stop is answered
        service.active += 1

        def take(size: int) -> None:
            nonlocal received
            admission.bodies.take(size)
            received += size

        try:
            async with asyncio.timeout(limits.seconds):
                body = await _body(request, limits, take)
                if refusal is not None:
                    raise refusal
                with admission.requests.hold(1):
                    return await _unless_gone(request, service.answering.respond(body, request.headers, intake))
        except TimeoutError:
            sentence = f"no answer within {limits.seconds:.0f} s: send less at once, or send it again later"
            raise ServeError(Kind.TOO_LATE, sentence) from None
        except ClientDisconnect:
            return Response(status_code=499)  # for the log line only: nginx's number for "client closed request"
        finally:
            admission.bodies.give(received)
            service.active -= 1

    routes = [
        Route("/ping", _with_error_bodies(ping), methods=["GET"]),
        Route("/execution-parameters", _with_error_bodies(batch_parameters), methods=["GET"]),
        Route("/invocations", _with_error_bodies(invocations), methods=["POST"]),
    ]
    return _AccessLog(Starlette(routes=routes, exception_handlers={HTTPException: _no_such_route}))


def _refusal_now(service: Service) -> ServeError | None:
    try:
        service.check_open()
    except ServeError as error:
        return error
    return None


def _with_error_bodies(endpoint: Endpoint) -> Endpoint:
    """`endpoint`, with every exception turned into the one body shape.

    Done here and not by Starlette's own handler for exceptions, which raises them again for the server to log a second
    time.
    """

    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:
            return _refusal(foreseen(error, log))
        except asyncio.CancelledError:  # a stop that has waited for this request for as long as it may
            return _refusal(
                ServeError(Kind.NOT_READY, "the server stops before it could answer: send the request again")
            )

    return guarded


async def _body(request: Request, limits: RequestLimits, take: Callable[[int], None]) -> bytes:
    """The request's body; ServeError if it is too large (413), or if `take` refuses the size of a part (503).

    A body that is refused is read on and thrown away, up to a limit, so that a client that is still sending reads the
    answer instead of a broken pipe.
    """
    chunks: list[bytes] = []
    size = 0
    refusal: ServeError | None = None
    async for chunk in request.stream():
        size += len(chunk)
        if size > limits.drained:
            raise limits.too_large(f"more than {limits.drained}", close=True)
        if refusal is not None or size > limits.body:
            chunks.clear()
            continue
        try:
            take(len(chunk))
            chunks.append(chunk)
        except ServeError as error:
            refusal = error
    if size > limits.body:
        raise limits.too_large(str(size))
    if refusal is not None:
        raise refusal
    return b"".join(chunks)


async def _unless_gone(request: Request, responding: Coroutine[Any, Any, Response]) -> Response:
    """What `responding` gives; it is cancelled, and ClientDisconnect raised, when the client goes before."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    response, end = asyncio.create_task(responding), asyncio.create_task(gone())
    try:
        await asyncio.wait((response, end), return_when=asyncio.FIRST_COMPLETED)
        if response.done():
            return response.result()
        raise ClientDisconnect
    finally:
        response.cancel()
        end.cancel()


def _json(status: int, value: object, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode(dump(value)), status_code=status, headers=headers, media_type=JSON)


def _refusal(error: ServeError) -> Response:
    return _json(error.status, error.body(), error.headers())


async def _no_such_route(request: Request, error: Exception) -> Response:
    """Starlette's own errors: an unknown path, or a method that a path does not take."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        refusal = ServeError(Kind.METHOD_NOT_ALLOWED, f"{request.url.path} does not take {request.method}")
    else:
        paths = "GET /ping, GET /execution-parameters and POST /invocations"
        refusal = ServeError(Kind.NOT_FOUND, f"no such path: this server answers {paths}")
    response = _refusal(refusal)
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
