"""One invocation, from the first byte of its body to its response.

It keeps to the service's limits, and ends if its client disconnects or its time is over.
"""

import asyncio
import io
from collections.abc import Coroutine
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from berth.serve.admission import Admission, Holding
from berth.serve.errors import Kind, ServeError
from berth.serve.limits import BodyLimits
from berth.serve.models.service import Service
from berth.serve.observing.figures import StageTimes
from berth.serve.questions.body import Reader

TIMES = "berth.times"
"""Key in a request's scope; its value is the StageTimes."""
_TRUSTED_PART = 16
"""Once a client has sent a sixteenth of its body, room for the whole body is reserved."""


async def invoke(request: Request, service: Service, admission: Admission, reader: Reader) -> Response:
    """The service's response; ServeError if the request is refused, fails or takes too long. All services share
    `admission` and `reader`.
    """
    seconds = service.limits.seconds
    times = request.scope[TIMES] = StageTimes()
    refusal = service.closed  # asked before the body is read: requests that came before a stop are answered
    held = Holding(service.bodies, admission.bodies)
    service.active += 1
    try:
        async with asyncio.timeout(seconds):
            with times.measure("receive"):
                body = await read_body(request, service.body_limits, held, refusal)
            with admission.requests.hold(1):
                responding = service.answering.respond(body, request.headers, reader, times)
                del body  # frees a large body as soon as a worker has it
                return await _unless_disconnected(request, responding)
    except TimeoutError:
        sentence = f"no answer within {seconds:.0f} s: send less at once, or send it again later"
        raise ServeError(Kind.TOO_LATE, sentence) from None
    except ClientDisconnect:
        return Response(status_code=499)  # for the log line only: nginx's number for "client closed request"
    finally:
        held.give_all()
        service.active -= 1


async def read_body(request: Request, limits: BodyLimits, held: Holding, refusal: ServeError | None = None) -> bytes:
    """The request's body; ServeError if it is too large (413) or `held` gets no room for it (503). `refusal`: raised
    instead, if the request is refused already.

    Room for the whole body is reserved once a part of it has arrived. So if many bodies arrive at once, some of them
    are answered, and a client that sends nothing takes no room. A refused body is read to its end and discarded, up to
    a limit, so that a client that is still sending gets the response instead of a broken pipe.
    """
    received = io.BytesIO()  # getvalue() returns its buffer without a copy
    declared = int(request.headers.get("content-length", 0))
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limits.drained:
            raise limits.too_large(f"more than {limits.drained}", close=True)
        if refusal is None and max(size, declared) <= limits.most:
            try:
                held.grow_to(max(size, declared) if _TRUSTED_PART * size >= declared else size)
                received.write(chunk)
                continue
            except ServeError as error:
                refusal = error
        received = io.BytesIO()
        held.give_all()
    if size > limits.most:
        raise limits.too_large(str(size))
    if refusal is not None:
        raise refusal
    return received.getvalue()


async def _unless_disconnected(request: Request, responding: Coroutine[Any, Any, Response]) -> Response:
    """The result of `responding`. If the client disconnects first, it is cancelled and ClientDisconnect is raised."""

    async def wait_for_disconnect() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    response, end = asyncio.create_task(responding), asyncio.create_task(wait_for_disconnect())
    try:
        await asyncio.wait((response, end), return_when=asyncio.FIRST_COMPLETED)
        if response.done():
            return response.result()
        raise ClientDisconnect
    finally:
        response.cancel()
        end.cancel()
