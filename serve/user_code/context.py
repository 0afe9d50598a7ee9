"""The `context` of a handler's functions: the part of Multi Model Server's context that concerns a request.

A process answers one request at a time, and the same object is filled again for each.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pickle import PickleBuffer
from typing import Any


class RequestHeaders(dict[str, str]):
    """A request's headers. Names may be in any case."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__({name.title(): value for name, value in headers.items()})

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.title())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.title())

    def get(self, name: str, default: Any = None) -> Any:
        """The value, or `default`."""
        return super().get(name.title(), default)


class RequestContext:
    """A request and its answer, for example `context.get_request_header(0, "X-Amzn-SageMaker-Custom-Attributes")`. Many
    methods take the index of a request in its batch. It is always 0, because a batch has one request.
    """

    def __init__(self, model_dir: str, model_name: str, gpu_id: int | None) -> None:
        self.model_name = model_name
        self.manifest = {"model": {"modelName": model_name}}
        self.system_properties: dict[str, Any] = {
            "model_dir": model_dir,
            "gpu_id": gpu_id,
            "batch_size": 1,
            "server_name": "berth",
        }
        self.begin({}, "")

    def begin(self, headers: Mapping[str, str], request_id: str) -> None:
        """Fill the object for the next request."""
        self.request_ids = {0: request_id}
        self._request = RequestHeaders(headers)
        self._status: tuple[int, str] | None = None
        self._answer: dict[str, str] = {}

    @property
    def request_processor(self) -> "list[RequestContext]":
        """Multi Model Server has one object per request of a batch."""
        return [self]

    def get_request_id(self, idx: int = 0) -> str:
        return self.request_ids[idx]

    def get_request_header(self, idx: int, key: str) -> str | None:
        value: str | None = self._request.get(key)
        return value

    def get_all_request_header(self, idx: int) -> RequestHeaders:
        return self._request

    def get_request_property(self, key: str) -> str | None:
        return self.get_request_header(0, key)

    def get_request_properties(self) -> RequestHeaders:
        return self._request

    def set_response_content_type(self, idx: int, value: str) -> None:
        self._answer["content-type"] = value

    def get_response_content_type(self, idx: int) -> str | None:
        return self._answer.get("content-type")

    def set_response_header(self, idx: int, key: str, value: str) -> None:
        self._answer[key.lower()] = value

    def get_response_headers(self, idx: int) -> dict[str, str]:
        return self._answer

    def set_response_status(self, code: int = 200, phrase: str = "", idx: int = 0) -> None:
        self._status = (int(code), phrase)

    def set_all_response_status(self, code: int = 200, phrase: str = "") -> None:
        self.set_response_status(code, phrase)

    def get_response_status(self, idx: int) -> tuple[int, str]:
        return self._status or (int(HTTPStatus.OK), "")


@dataclass(frozen=True, slots=True)
class HandlerInput:
    """A request for a user's handler: its body and headers, unchanged except for lower-case names."""

    body: bytes
    headers: Mapping[str, str]
    length: int = 1
    """Tokens in the queue; the real cost of a handler's request is unknown."""

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        """Let MessageWire send the body without a copy."""
        return HandlerInput, (PickleBuffer(self.body), self.headers, self.length)


@dataclass(frozen=True, slots=True)
class HandlerAnswer:
    """The complete answer of a user's handler."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    error_type: str = ""
    """The kind, if it is an error in the server's own format."""

    def __reduce_ex__(self, _protocol: Any) -> tuple[Any, ...]:
        """See HandlerInput."""
        return HandlerAnswer, (self.status, self.headers, PickleBuffer(self.body), self.error_type)
