"""Logs and counts each request when it has ended.

Requests for /metrics are skipped, as are those for /ping, which SageMaker sends every few seconds.
"""

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from berth.serve.http.invocation import TIMES
from berth.serve.observing.figures import StageTimes
from berth.serve.observing.log import FIELDS
from berth.serve.observing.metrics import Metrics
from berth.serve.responses import ERROR_TYPE

log = logging.getLogger(__name__)

_SKIPPED_PATHS = {"/ping", "/metrics"}
# SageMaker's headers that identify a request, and their fields in a JSON log line.
_IDENTIFIERS = {
    b"x-amzn-sagemaker-inference-id": "inference_id",
    b"x-amzn-sagemaker-target-model": "target_model",
    b"x-amzn-requestid": "request_id",
}


class AccessLog:
    """The ASGI application around `app` that logs its requests."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _SKIPPED_PATHS:
            await self.app(scope, receive, send)
            return
        began = time.monotonic()
        status = 500

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, note_status)
        finally:
            self._note(scope, status, time.monotonic() - began)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        times: StageTimes | None = scope.get(TIMES)
        route = scope.get("route")
        self.metrics.note(route.path if route else "other", status, times)
        # The raw path is still percent-encoded, so a client can't write a line break into the log.
        path = scope.get("raw_path", b"").decode("ascii", "backslashreplace")
        fields = {
            "method": scope["method"],
            "path": path,
            "status": status,
            "ms": round(1000 * seconds, 1),
            "stages_ms": {name: round(1000 * taken, 1) for name, taken in (times.known() if times else {}).items()},
        }
        for name, value in scope["headers"]:
            if name in _IDENTIFIERS:
                fields[_IDENTIFIERS[name]] = value.decode("latin-1")[:200]
        reason = ""
        if error_type := scope.get(ERROR_TYPE):
            fields["error_type"] = error_type
            reason = f" {error_type}"
        log.info("%s %s %d%s in %.0f ms", scope["method"], path, status, reason, 1000 * seconds, extra={FIELDS: fields})
