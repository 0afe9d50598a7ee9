"""The hints in order; the first that applies is used.

A hint gets the failure and the program's context. It returns a text that starts with "; " and follows the cause, or "".
An exception in a hint is ignored, so that it can't hide the user's failure.
"""

import importlib
from collections.abc import Sequence
from dataclasses import replace

from berth.runtime.hints.program import ProgramContext, RaisedException

EXCEPTION_HINTS = (
    "hidden_packages",
    "replaced_packages",
    "inference_toolkits",
    "messages",
    "missing_modules",
    "relative_imports",
    "removed_pipeline",
    "removed_apis",
    "environment",
    "hardware",
    "tools",
    "places",
    "advice",
)
"""Modules whose `hint` takes an exception."""
LAST_LINE_HINTS = ("arguments", "tools")
"""Modules whose `line_hint` takes a line."""


def remedy(raised: RaisedException, context: ProgramContext) -> str:
    """The hint for the exception that ended a program; "" if there is none."""
    one_line = replace(raised, message=" ".join(raised.message.split()))
    return _first(EXCEPTION_HINTS, "hint", one_line, context)


def last_line_remedy(line: str, context: ProgramContext) -> str:
    """The hint for the last line on stderr of a program that ended without an exception; "" if there is none."""
    return _first(LAST_LINE_HINTS, "line_hint", line, context)


def _first(modules: Sequence[str], function: str, failure: RaisedException | str, context: ProgramContext) -> str:
    for module in modules:
        try:
            # Imported here, because only failed programs need hints, and a user's requirements.txt may have broken the
            # packages that they import.
            text: str = getattr(importlib.import_module(f"berth.runtime.hints.{module}"), function)(failure, context)
        except Exception:  # a user's files and messages can be anything
            continue
        if text:
            return text
    return ""
