"""A user's handler at work: its functions run, and whatever they do, an answer comes of it."""

import inspect
import logging
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sagemaker_inference.errors import BaseInferenceToolkitError

from berth.runtime.engines.model_folder import ModelFilesError
from berth.serve.codecs import JSON
from berth.serve.errors import Kind, ServeError
from berth.serve.json_text import dump, encode
from berth.serve.user_code.context import RequestContext
from berth.serve.user_code.defaults import accepted_type, encode_prediction
from berth.serve.user_code.failures import failure_sentence, trace_text
from berth.serve.user_code.find import UserCode
from berth.serve.user_code.functions import Defaults, HandlerFunctions, import_handler
from berth.serve.user_code.progress import report_progress
from berth.serve.workers.messages import HandlerAnswer, HandlerRequest

log = logging.getLogger(__name__)

# Only the server, which writes them on the connection, can know these.
_OF_CONNECTION = {"content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer"}
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_WITHOUT_BODY = (204, 304)


class UserHandler:
    """The functions of a user's file with its model, and what a request makes of them."""

    def __init__(self, code: UserCode, model_dir: Path, defaults: Defaults, gpu_id: int | None = None) -> None:
        """Import the file and load its model; ModelFilesError with one sentence if it can't be."""
        self._code = code
        self._accept = os.environ.get("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", "").strip() or None
        self._context = RequestContext(str(model_dir), model_dir.name, gpu_id)
        try:
            with report_progress(code):
                self._functions = HandlerFunctions(import_handler(code), defaults, self._context)
                self._functions.load_model(str(model_dir))
        except ModelFilesError:
            raise
        except BaseException as error:
            log.error("the model's own code failed\n%s", trace_text(error))
            raise ModelFilesError(failure_sentence(error, code)) from error

    def answer(self, request: HandlerRequest) -> HandlerAnswer:
        """What the functions make of a request; where they raise, the status says so, and the body in one sentence."""
        headers = request.headers
        self._context.begin(headers, headers.get("x-amzn-requestid", ""))
        try:
            accept = accepted_type(headers.get("accept"), self._accept)
            found = self._functions.transform(request.body, headers.get("content-type") or JSON, accept)
            return self._answer_of(found, accept)
        except ServeError as error:
            return _refused(error.status, error.body())
        except BaseInferenceToolkitError as error:  # a handler's own way to say a status
            code = error.status_code
            status = int(code) if isinstance(code, int) and 400 <= code <= 599 else 500
            return _refused(status, {"error": str(error.message), "error_type": str(Kind.HANDLER_FAILED)})
        except BaseException as error:  # sys.exit() as well: the process is the server's
            identifier = secrets.token_hex(4)
            log.error("the model's own code failed, id %s\n%s", identifier, trace_text(error))
            sentence = failure_sentence(error, self._code, identifier)
            return _refused(500, {"error": sentence, "error_type": str(Kind.HANDLER_FAILED)})

    def _answer_of(self, found: Any, accept: str) -> HandlerAnswer:
        """`found` is a body, or a body and its type; without, the context's type counts, then what is accepted."""
        if inspect.isgenerator(found):
            found = _joined(list(found))
        media_type = self._context.get_response_content_type(0) or accept
        if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], str):
            found, media_type = found
        status, _ = self._context.get_response_status(0)
        if not 200 <= status <= 599:
            raise ValueError(f"the response's status is {status}: it must be from 200 to 599")
        headers = {name: str(value) for name, value in self._context.get_response_headers(0).items()}
        if status in _WITHOUT_BODY:
            headers.pop("content-type", None)
            return HandlerAnswer(status, _sendable(headers), b"")
        body, media_type = _body_of(found, media_type)
        return HandlerAnswer(status, _sendable({**headers, "content-type": media_type}), body)


def _joined(parts: list[Any]) -> Any:
    """One body of what a function yielded in parts, or the list of its values."""
    if all(isinstance(part, str | bytes) for part in parts):
        return b"".join(encode(part) if isinstance(part, str) else part for part in parts)
    return parts


def _body_of(found: Any, media_type: str) -> tuple[bytes, str]:
    """The bytes of what a function returned, and their type."""
    if isinstance(found, str):
        return encode(found), media_type
    if isinstance(found, bytes | bytearray | memoryview):
        return bytes(found), media_type
    return encode_prediction(found, media_type)


def _refused(status: int, body: Mapping[str, str | int]) -> HandlerAnswer:
    return HandlerAnswer(status, {"content-type": JSON}, encode(dump(body)), str(body["error_type"]))


def _sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """Without those that HTTP could not carry, or that only the server can know."""
    kept = {}
    for name, value in headers.items():
        if name in _OF_CONNECTION:
            continue
        if _NAME.fullmatch(name) and _VALUE.fullmatch(value):
            kept[name] = value
        else:
            log.warning("a header that the model's own code set can't be sent: %r", name[:80])
    return kept
