"""Why a handler failed: the sentence that a client or /ping gets, and the traceback for the log."""

import os
import sys
import traceback
from pathlib import Path
from types import TracebackType

from berth.contract.masking import mask_text
from berth.runtime.hints.advice import without_advice
from berth.runtime.hints.program import ProgramContext, RaisedException
from berth.runtime.hints.table import remedy
from berth.serve.user_code.environment import package_note
from berth.serve.user_code.find import FUNCTIONS, UserCode

_SHOWN_CHARACTERS = 300
_READ_CHARACTERS = 4000


def failure_sentence(error: BaseException, code: UserCode, log_id: str = "") -> str:
    """Such as `predict_fn of the model's inference.py raised ValueError: no such label (raised at inference.py:7): the
    log has the traceback`, then what helps. `log_id`: under which the log has it.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(code.folder)]
    where = f" (raised at {os.path.relpath(own[-1].filename, code.folder)}:{own[-1].lineno})" if own else ""
    behind = remedy(
        RaisedException(_kind(error), _text(error), [frame.filename for frame in frames]),
        ProgramContext(code.folder, environ=os.environ, package_note=package_note(Path(sys.prefix)), serving=True),
    )
    traced = f": the log has the traceback{f' under the id {log_id}' if log_id else ''}"
    return f"{_what(error, code)}{where}{traced}{behind}"


def trace_text(error: BaseException) -> str:
    """The traceback, without secrets."""
    return mask_text("".join(traceback.format_exception(error)))


def _what(error: BaseException, code: UserCode) -> str:
    function = _function_at_fault(error.__traceback__, code.file)
    lines = _text(error).strip().splitlines() or [""]
    message = without_advice(mask_text(lines[0]))[:_SHOWN_CHARACTERS]
    raised = f"raised {type(error).__name__}" + (f": {message}" if message else "")
    match function:
        case "":
            return f"the model's {code.file.name} failed ({type(error).__name__}{f': {message}' if message else ''})"
        case "<module>":
            return f"the model's {code.file.name} can't be imported, it {raised}"
        case _:
            return f"{function} of the model's {code.file.name} {raised}"


def _function_at_fault(trace: TracebackType | None, file: Path) -> str:
    """The handler's function in which an exception was raised, `<module>` for the import, "" for none of the file."""
    names = [frame.name for frame in traceback.extract_tb(trace) if Path(frame.filename) == file]
    return next((name for name in names if name in FUNCTIONS), names[0] if names else "")


def _text(error: BaseException) -> str:
    """What an exception says, which may be as long as a request, or raise itself."""
    try:
        return str(error)[:_READ_CHARACTERS]
    except Exception as another:
        return f"its text can't be had: {type(another).__name__}"


def _kind(error: BaseException) -> str:
    module = type(error).__module__
    return type(error).__qualname__ if module == "builtins" else f"{module}.{type(error).__qualname__}"
