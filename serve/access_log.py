"""What is told of each request when it has ended: a line, and the metrics' counters. Not of /ping, which comes every
few seconds for as long as an endpoint lives, nor of those that only look at the server.
"""

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from berth.serve.figures import StageTimes
from berth.serve.invocation import TIMES
from berth.serve.log import FIELDS
from berth.serve.metrics import Metrics
from berth.serve.responses import ERROR_TYPE

log = logging.getLogger(__name__)

_UNSEEN = {"/ping", "/metrics"}
# What SageMaker says of a request, and the name that a line in JSON has for it.
_IDENTIFIERS = {
    b"x-amzn-sagemaker-inference-id": "inference_id",
    b"x-amzn-sagemaker-target-model": "target_model",
    b"x-amzn-requestid": "request_id",
}


class AccessLog:
    """The application, with its log."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _UNSEEN:
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
            self._note(scope, status, time.monotonic() - began)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        times: StageTimes | None = scope.get(TIMES)
        route = scope.get("route")
        self.metrics.note(route.path if route else "other", status, times)
        # The raw path is still quoted: nobody can write a line break into the log.
        path = scope.get("raw_path", b"").decode("ascii", "backslashreplace")
        said = {
            "method": scope["method"],
            "path": path,
            "status": status,
            "ms": round(1000 * seconds, 1),
            "stages_ms": {name: round(1000 * taken, 1) for name, taken in (times.known() if times else {}).items()},
        }
        for name, value in scope["headers"]:
            if name in _IDENTIFIERS:
                said[_IDENTIFIERS[name]] = value.decode("latin-1")[:200]
        reason = ""
        if error_type := scope.get(ERROR_TYPE):
            said["error_type"] = error_type
            reason = f" {error_type}"
        log.info("%s %s %d%s in %.0f ms", scope["method"], path, status, reason, 1000 * seconds, extra={FIELDS: said})
