"""A request for an answer, from its body's first byte to its response: within the limits, and no longer than its client
waits.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from berth.serve.admission import Admission
from berth.serve.answering import Intake
from berth.serve.errors import Kind, ServeError
from berth.serve.figures import StageTimes
from berth.serve.limits import RequestLimits
from berth.serve.service import Service

TIMES = "berth.times"
"""Where a request's scope has its stages."""


class Invoker:
    """Takes requests for whichever service is to answer them; all of them together have the same shares."""

    def __init__(self, limits: RequestLimits, admission: Admission, intake: Intake) -> None:
        self._limits = limits
        self._admission = admission
        self._intake = intake

    async def answer(self, request: Request, service: Service) -> Response:
        """What the service responds; ServeError if it can't, has no time, or there is too much at once."""
        received = 0
        limits = self._limits
        times = request.scope[TIMES] = StageTimes()
        refusal = _refusal_now(service)  # by the time of its header: what comes before a stop is answered
        service.active += 1

        def take(size: int) -> None:
            nonlocal received
            self._admission.bodies.take(size)
            received += size

        try:
            async with asyncio.timeout(limits.seconds):
                with times.measure("receive"):
                    body = await read_body(request, limits, take)
                if refusal is not None:
                    raise refusal
                with self._admission.requests.hold(1):
                    responding = service.answering.respond(body, request.headers, self._intake, times)
                    return await _unless_gone(request, responding)
        except TimeoutError:
            sentence = f"no answer within {limits.seconds:.0f} s: send less at once, or send it again later"
            raise ServeError(Kind.TOO_LATE, sentence) from None
        except ClientDisconnect:
            return Response(status_code=499)  # for the log line only: nginx's number for "client closed request"
        finally:
            self._admission.bodies.give(received)
            service.active -= 1


def _refusal_now(service: Service) -> ServeError | None:
    try:
        service.check_open()
    except ServeError as error:
        return error
    return None


async def read_body(request: Request, limits: RequestLimits, take: Callable[[int], None]) -> bytes:
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
