"""A request for an answer, from its body's first byte to its response: within the limits of whoever answers, and no
longer than its client waits.
"""

import asyncio
import io
from collections.abc import Coroutine
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from berth.serve.admission import Admission, Holding
from berth.serve.answering import Intake
from berth.serve.errors import Kind, ServeError
from berth.serve.figures import StageTimes
from berth.serve.limits import BodyLimits, RequestLimits
from berth.serve.service import Service

TIMES = "berth.times"
"""Where a request's scope has its stages."""
_TRUSTED_PART = 16
"""A client that has sent one part in so many of its body is expected to send the rest."""


class Invoker:
    """Takes requests for whichever service is to answer them; all of them together have the same shares."""

    def __init__(self, limits: RequestLimits, admission: Admission, intake: Intake) -> None:
        self._seconds = limits.seconds
        self._admission = admission
        self._intake = intake

    async def answer(self, request: Request, service: Service) -> Response:
        """What the service responds; ServeError if it can't, has no time, or there is too much at once."""
        times = request.scope[TIMES] = StageTimes()
        refusal = service.closed  # by the time of its header: what comes before a stop is answered
        held = Holding(service.bodies, self._admission.bodies)
        service.active += 1
        try:
            async with asyncio.timeout(self._seconds):
                with times.measure("receive"):
                    body = await read_body(request, service.body_limits, held, refusal)
                with self._admission.requests.hold(1):
                    responding = service.answering.respond(body, request.headers, self._intake, times)
                    del body  # so that a large one is held by nobody once a worker has it
                    return await _unless_gone(request, responding)
        except TimeoutError:
            sentence = f"no answer within {self._seconds:.0f} s: send less at once, or send it again later"
            raise ServeError(Kind.TOO_LATE, sentence) from None
        except ClientDisconnect:
            return Response(status_code=499)  # for the log line only: nginx's number for "client closed request"
        finally:
            held.give_all()
            service.active -= 1


async def read_body(request: Request, limits: BodyLimits, held: Holding, refusal: ServeError | None = None) -> bytes:
    """The request's body; ServeError if it is too large (413), if `held` can't have so much (503), or `refusal` if the
    request is refused already.

    Room for a whole body is taken once a part of it has come: of many bodies at one time some are answered, and a
    client that sends nothing takes no room. A body that is refused is read on and thrown away, up to a limit, so that a
    client that is still sending reads the answer instead of a broken pipe.
    """
    received = io.BytesIO()  # whose value is its buffer: nothing is copied at the end
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
