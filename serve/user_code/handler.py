"""Runs a user's handler. Every request gets an answer, even if the handler raises an exception."""

import inspect
import logging
import os
import re
import secrets
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from sagemaker_inference.errors import BaseInferenceToolkitError

from berth.contract.masking import mask_text
from berth.runtime.engines.model_folder import ModelFilesError
from berth.runtime.hints.program import ProgramContext, RaisedException
from berth.runtime.hints.table import remedy
from berth.serve.errors import Kind, ServeError
from berth.serve.questions.codecs import JSON
from berth.serve.questions.json_text import dump, encode
from berth.serve.user_code.context import HandlerAnswer, HandlerInput, RequestContext
from berth.serve.user_code.defaults import DefaultHandler, accepted_type, encode_prediction
from berth.serve.user_code.environment import package_note
from berth.serve.user_code.find import FUNCTIONS, UserCode
from berth.serve.user_code.functions import HandlerFunctions, import_handler

log = logging.getLogger(__name__)

# Headers that only the server may set, because they depend on the connection.
_CONNECTION_HEADERS = {"content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer"}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_WITHOUT_BODY = (204, 304)


class UserHandler:
    """A user's handler with its loaded model."""

    def __init__(self, code: UserCode, model_dir: Path, defaults: DefaultHandler, gpu_id: int | None = None) -> None:
        """Import the file and load its model; ModelFilesError with one sentence if that fails."""
        self._code = code
        self._accept = os.environ.get("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", "").strip() or None
        self._context = RequestContext(str(model_dir), model_dir.name, gpu_id)
        try:
            log.info("loading the model's own code")
            self._functions = HandlerFunctions(import_handler(code), defaults, self._context)
            self._functions.load_model(str(model_dir))
        except ModelFilesError:
            raise
        except BaseException as error:
            log.error("the model's own code failed\n%s", trace_text(error))
            raise ModelFilesError(failure_sentence(error, code)) from error

    def answer(self, handler_input: HandlerInput) -> HandlerAnswer:
        """The handler's answer. If it raises an exception, an error with a status and one sentence."""
        headers = handler_input.headers
        self._context.begin(headers, headers.get("x-amzn-requestid", ""))
        try:
            accept = accepted_type(headers.get("accept"), self._accept)
            result = self._functions.transform(handler_input.body, headers.get("content-type") or JSON, accept)
            return self._answer_of(result, accept)
        except ServeError as error:
            return _error_answer(error.status, error.body())
        except BaseInferenceToolkitError as error:  # with which a handler can choose the status
            code = error.status_code
            status = int(code) if isinstance(code, int) and 400 <= code <= 599 else 500
            return _error_answer(status, {"error": str(error.message), "error_type": str(Kind.HANDLER_FAILED)})
        except BaseException as error:  # sys.exit() too: it must not end the worker
            identifier = secrets.token_hex(4)
            log.error("the model's own code failed, id %s\n%s", identifier, trace_text(error))
            sentence = failure_sentence(error, self._code, identifier)
            return _error_answer(500, {"error": sentence, "error_type": str(Kind.HANDLER_FAILED)})

    def _answer_of(self, result: Any, accept: str) -> HandlerAnswer:
        """`result`: a body, or a body and its media type. The default type is the context's, then `accept`."""
        if inspect.isgenerator(result):
            result = _joined(list(result))
        media_type = self._context.get_response_content_type(0) or accept
        if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], str):
            result, media_type = result
        status, _ = self._context.get_response_status(0)
        if not 200 <= status <= 599:
            raise ValueError(f"the response's status is {status}: it must be from 200 to 599")
        headers = {name: str(value) for name, value in self._context.get_response_headers(0).items()}
        if status in _WITHOUT_BODY:
            headers.pop("content-type", None)
            return HandlerAnswer(status, _sendable(headers), b"")
        body, media_type = _body_of(result, media_type)
        return HandlerAnswer(status, _sendable({**headers, "content-type": media_type}), body)


def _joined(parts: list[Any]) -> Any:
    """The joined parts that a function yielded if all are text or bytes, else the list of its values."""
    if all(isinstance(part, str | bytes) for part in parts):
        return b"".join(encode(part) if isinstance(part, str) else part for part in parts)
    return parts


def _body_of(result: Any, media_type: str) -> tuple[bytes, str]:
    """A function's result as bytes, and their media type."""
    if isinstance(result, str):
        return encode(result), media_type
    if isinstance(result, bytes | bytearray | memoryview):
        return bytes(result), media_type
    return encode_prediction(result, media_type)


def _error_answer(status: int, body: Mapping[str, str | int]) -> HandlerAnswer:
    return HandlerAnswer(status, {"content-type": JSON}, encode(dump(body)), str(body["error_type"]))


def _sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers without invalid ones and those that only the server may set."""
    kept = {}
    for name, value in headers.items():
        if name in _CONNECTION_HEADERS:
            continue
        if _HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value):
            kept[name] = value
        else:
            log.warning("a header that the model's own code set can't be sent: %r", name[:80])
    return kept


_SHOWN_CHARACTERS = 300
_READ_CHARACTERS = 4000


def failure_sentence(error: BaseException, code: UserCode, log_id: str = "") -> str:
    """The error for a client, then advice. Such as: predict_fn of the model's inference.py raised ValueError: no such
    label (raised at inference.py:7): the log has the traceback. `log_id`: the id of the traceback in the log.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(code.folder)]
    where = f" (raised at {os.path.relpath(own[-1].filename, code.folder)}:{own[-1].lineno})" if own else ""
    advice = remedy(
        RaisedException(_kind(error), _text(error), [frame.filename for frame in frames]),
        ProgramContext(code.folder, environ=os.environ, package_note=package_note(Path(sys.prefix)), serving=True),
    )
    traced = f": the log has the traceback{f' under the id {log_id}' if log_id else ''}"
    return f"{_describe(error, code)}{where}{traced}{advice}"


def trace_text(error: BaseException) -> str:
    """The traceback with secrets masked."""
    return mask_text("".join(traceback.format_exception(error)))


def _describe(error: BaseException, code: UserCode) -> str:
    function = _function_at_fault(error.__traceback__, code.file)
    lines = _text(error).strip().splitlines() or [""]
    message = mask_text(lines[0])[:_SHOWN_CHARACTERS]
    raised = f"raised {type(error).__name__}" + (f": {message}" if message else "")
    match function:
        case "":
            return f"the model's {code.file.name} failed ({type(error).__name__}{f': {message}' if message else ''})"
        case "<module>":
            return f"the model's {code.file.name} can't be imported, it {raised}"
        case _:
            return f"{function} of the model's {code.file.name} {raised}"


def _function_at_fault(trace: TracebackType | None, file: Path) -> str:
    """The handler's function that raised the exception, else the file's first function in the traceback (`<module>`
    during the import), else "".
    """
    names = [frame.name for frame in traceback.extract_tb(trace) if Path(frame.filename) == file]
    return next((name for name in names if name in FUNCTIONS), names[0] if names else "")


def _text(error: BaseException) -> str:
    """The exception's text, cut, because it may be as long as a request. str() of it may raise, too."""
    try:
        return str(error)[:_READ_CHARACTERS]
    except Exception as another:
        return f"its text can't be read: {type(another).__name__}"


def _kind(error: BaseException) -> str:
    module = type(error).__module__
    return type(error).__qualname__ if module == "builtins" else f"{module}.{type(error).__qualname__}"
