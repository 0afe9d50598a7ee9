"""The server's errors: one exception type, one table from its kind to an HTTP status, one body shape.

Every error that the server itself answers has the body `{"error": "<one sentence>", "error_type": "<a kind of the
table>"}`, and `retry_after` if there is a Retry-After header. A client never sees a traceback: an unexpected exception
becomes `internal` with an id, and the log has the traceback under that id.
"""

import logging
import secrets
from enum import StrEnum
from http import HTTPStatus


class Kind(StrEnum):
    """The kind of an error, which the client gets as `error_type`."""

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
    """An expected error: `kind` decides the status, `message` is one sentence with what is wrong and what to do.

    `retry_after`: seconds after which the client may send the request again. `close`: close the connection after the
    response, because the request has not been read to its end.
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
        """The response's headers besides those of its body."""
        headers = {"retry-after": str(self.retry_after)} if self.retry_after is not None else {}
        return headers | ({"connection": "close"} if self.close else {})

    def body(self) -> dict[str, str | int]:
        """The JSON body. It repeats `retry_after`, because SageMaker does not pass the header on to the client."""
        body: dict[str, str | int] = {"error": self.message, "error_type": str(self.kind)}
        return body if self.retry_after is None else body | {"retry_after": self.retry_after}


def as_serve_error(error: Exception, log: logging.Logger) -> ServeError:
    """`error` itself if it is a `ServeError`; otherwise an `internal` one, whose id and traceback are logged."""
    if isinstance(error, ServeError):
        return error
    identifier = secrets.token_hex(4)
    log.error("unexpected error in a request, id %s", identifier, exc_info=error)
    return ServeError(Kind.INTERNAL, f"the server failed on this request: the log has the reason, id {identifier}")
