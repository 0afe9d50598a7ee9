"""The server's errors: one exception type, one table from its kind to an HTTP status, one body shape.

Every answer that is not 2xx has the body `{"error": "<one sentence>", "error_type": "<a kind of the table>"}`, with the
seconds of Retry-After where there is one. A client never sees a traceback: what nobody foresaw becomes `internal` with
an id under which the log has the traceback.
"""

import logging
import secrets
from enum import StrEnum
from http import HTTPStatus


class Kind(StrEnum):
    """What went wrong, as the client reads it in `error_type`."""

    BAD_REQUEST = "bad_request"
    NOT_FOUND = "not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    CONFLICT = "conflict"
    NOT_ACCEPTABLE = "not_acceptable"
    TOO_LARGE = "too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    INTERNAL = "internal"
    BROKEN_MODEL = "broken_model"
    GIVEN_UP = "given_up"
    HANDLER_FAILED = "handler_failed"
    NOT_READY = "not_ready"
    OVERLOADED = "overloaded"
    TOO_LATE = "too_late"
    NO_MEMORY = "no_memory"


STATUS: dict[Kind, HTTPStatus] = {
    Kind.BAD_REQUEST: HTTPStatus.BAD_REQUEST,
    Kind.NOT_FOUND: HTTPStatus.NOT_FOUND,
    Kind.METHOD_NOT_ALLOWED: HTTPStatus.METHOD_NOT_ALLOWED,
    Kind.CONFLICT: HTTPStatus.CONFLICT,
    Kind.NOT_ACCEPTABLE: HTTPStatus.NOT_ACCEPTABLE,
    Kind.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    Kind.UNSUPPORTED_MEDIA_TYPE: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    Kind.INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR,
    Kind.BROKEN_MODEL: HTTPStatus.INTERNAL_SERVER_ERROR,
    Kind.GIVEN_UP: HTTPStatus.INTERNAL_SERVER_ERROR,
    Kind.HANDLER_FAILED: HTTPStatus.INTERNAL_SERVER_ERROR,
    Kind.NOT_READY: HTTPStatus.SERVICE_UNAVAILABLE,
    Kind.OVERLOADED: HTTPStatus.SERVICE_UNAVAILABLE,
    Kind.TOO_LATE: HTTPStatus.GATEWAY_TIMEOUT,
    Kind.NO_MEMORY: HTTPStatus.INSUFFICIENT_STORAGE,
}


class ServeError(Exception):
    """A foreseen error: `kind` decides the status, the one sentence says what is wrong and what to do.

    `retry_after`: seconds after which the same request may be answered. `close`: the connection ends with the answer,
    because the request has not been read to its end.
    """

    def __init__(self, kind: Kind, message: str, retry_after: int | None = None, *, close: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after = retry_after
        self.close = close

    @property
    def status(self) -> int:
        """The HTTP status that the table gives for this kind."""
        return int(STATUS[self.kind])

    def headers(self) -> dict[str, str]:
        """The response's headers next to those of its body."""
        found = {"retry-after": str(self.retry_after)} if self.retry_after is not None else {}
        return found | ({"connection": "close"} if self.close else {})

    def body(self) -> dict[str, str | int]:
        """The JSON body that the client receives; SageMaker hands on no headers, so `retry_after` stands here too."""
        found: dict[str, str | int] = {"error": self.message, "error_type": str(self.kind)}
        return found if self.retry_after is None else found | {"retry_after": self.retry_after}


def foreseen(error: Exception, log: logging.Logger) -> ServeError:
    """`error` itself if it is a `ServeError`, otherwise an `internal` one whose id the log has with the traceback."""
    if isinstance(error, ServeError):
        return error
    identifier = secrets.token_hex(4)
    log.error("a request failed unforeseen, id %s", identifier, exc_info=error)
    return ServeError(Kind.INTERNAL, f"the server failed on this request: its log says why under the id {identifier}")
