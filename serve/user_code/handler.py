"""A user's handler at work: SageMaker's toolkit runs its functions, and whatever they do, an answer comes of it."""

import importlib
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
from sagemaker_inference.transformer import Transformer

from berth.contract.masking import mask_text
from berth.runtime.engines.model_folder import ModelFilesError
from berth.serve.codecs import JSON, text_of
from berth.serve.errors import Kind, ServeError
from berth.serve.json_text import dump, encode
from berth.serve.media_types import encoding_of, split
from berth.serve.user_code.context import RequestContext
from berth.serve.user_code.defaults import TEXT_TYPES, DefaultHandler, media_type_for
from berth.serve.user_code.find import FUNCTIONS, PROGRAM_VARIABLE, UserCode
from berth.serve.workers.messages import HandlerAnswer, HandlerRequest

log = logging.getLogger(__name__)

_SHOWN_CHARACTERS = 300
# Those that only who writes them on the connection can know.
_OF_CONNECTION = {"content-length", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer"}
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class _Transformer(Transformer):  # type: ignore[misc]  # the toolkit has no types
    """The toolkit's own would send the traceback to the client."""

    @staticmethod
    def handle_error(context: Any, inference_exception: Any, trace: str) -> Any:
        raise  # it is called where an exception is being handled


class UserHandler:
    """The functions of a user's file, ours where it has none, and its model."""

    def __init__(self, code: UserCode, model_dir: Path, default: DefaultHandler, gpu_id: int | None = None) -> None:
        """Import the file and load its model; ModelFilesError with one sentence if it can't be."""
        self._code = code
        self._default = default
        self._accept = os.environ.get("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT") or None
        self._context = RequestContext(str(model_dir), model_dir.name, gpu_id)
        self._transformer = _Transformer(default)
        os.environ[PROGRAM_VARIABLE] = code.file.name
        sys.path.insert(0, str(code.folder))
        importlib.invalidate_caches()
        try:
            self._transformer.validate_and_initialize(str(model_dir), self._context)
        except ModelFilesError:
            raise
        except BaseException as error:
            log.error("the model's own code failed\n%s", _trace(error))
            raise ModelFilesError(f"{_said(error, code)}: the log has the traceback") from error

    def answer(self, request: HandlerRequest) -> HandlerAnswer:
        """What the functions make of a request; where they raise, the status says so, and the body in one sentence."""
        self._context.begin(request.headers, request.headers.get("x-amzn-requestid", ""))
        try:
            body, headers = self._prepared(request)
            self._context.begin(headers, request.headers.get("x-amzn-requestid", ""))
            (found,) = self._transformer.transform([{"body": body}], self._context)
            return self._answer_of(found)
        except ServeError as error:
            return _refused(error.status, error.body())
        except BaseInferenceToolkitError as error:  # a handler's own way to say a status
            status = error.status_code if 400 <= error.status_code <= 599 else 500
            return _refused(status, {"error": str(error.message), "error_type": str(Kind.HANDLER_FAILED)})
        except BaseException as error:  # sys.exit() as well: the process is the server's
            identifier = secrets.token_hex(4)
            log.error("the model's own code failed, id %s\n%s", identifier, _trace(error))
            sentence = f"{_said(error, self._code)}: the log has the traceback under the id {identifier}"
            return _refused(500, {"error": sentence, "error_type": str(Kind.HANDLER_FAILED)})

    def _prepared(self, request: HandlerRequest) -> tuple[bytes, dict[str, str]]:
        """Body and headers as handlers are written for: one media type without parameters, text in UTF-8."""
        media_type, parameters = split(request.headers.get("content-type") or JSON)
        accept = media_type_for(request.headers.get("accept"), self._accept)
        headers = {**request.headers, "content-type": media_type, "accept": accept}
        if media_type not in TEXT_TYPES:
            return request.body, headers
        return text_of(request.body, encoding_of(parameters), media_type).encode(), headers

    def _answer_of(self, found: Any) -> HandlerAnswer:
        media_type = self._context.get_response_content_type(0) or JSON
        if isinstance(found, str):
            body = encode(found)
        elif isinstance(found, bytes | bytearray | memoryview):
            body = bytes(found)
        else:
            body, media_type = self._default.default_output_fn(found, media_type)
        headers = {name: str(value) for name, value in self._context.get_response_headers(0).items()}
        headers["content-type"] = media_type
        status, _ = self._context.get_response_status(0)
        return HandlerAnswer(status if 200 <= status <= 599 else 500, _sendable(headers), body)


def _refused(status: int, body: Mapping[str, str | int]) -> HandlerAnswer:
    return HandlerAnswer(status, {"content-type": JSON}, encode(dump(body)), str(body["error_type"]))


def _sendable(headers: Mapping[str, str]) -> dict[str, str]:
    """Without those that HTTP could not carry, or that are not the handler's to say."""
    kept = {}
    for name, value in headers.items():
        if name in _OF_CONNECTION:
            continue
        if _NAME.fullmatch(name) and _VALUE.fullmatch(value):
            kept[name] = value
        else:
            log.warning("a header that the model's own code set can't be sent: %r", name[:80])
    return kept


def _said(error: BaseException, code: UserCode) -> str:
    """Such as `predict_fn of inference.py raised ValueError: no such label`."""
    function = _function_at_fault(error.__traceback__, code.file)
    lines = str(error).strip().splitlines() or [""]
    message = mask_text(lines[0])[:_SHOWN_CHARACTERS]
    what = f"raised {type(error).__name__}" + (f": {message}" if message else "")
    match function:
        case "":
            return f"the model's {code.file.name} failed ({type(error).__name__}: {message})"
        case "<module>":
            return f"the model's {code.file.name} can't be imported, it {what}"
        case _:
            return f"{function} of the model's {code.file.name} {what}"


def _function_at_fault(trace: TracebackType | None, file: Path) -> str:
    """The handler's function in which an exception was raised, `<module>` for the import, "" for none of the file."""
    names = [frame.name for frame in traceback.extract_tb(trace) if Path(frame.filename) == file]
    return next((name for name in names if name in FUNCTIONS), names[0] if names else "")


def _trace(error: BaseException) -> str:
    return mask_text("".join(traceback.format_exception(error)))
