"""The hints in their order: the first that has something to say is the remedy.

A hint gets the failure and the program's context, and returns a text that starts with "; ", to stand behind the cause,
or "". A hint that raises must not hide the failure that it explains.
"""

import importlib
from collections.abc import Sequence
from dataclasses import replace

from berth.runtime.hints.program import ProgramContext, RaisedException

OF_EXCEPTIONS = (
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
    "endpoint",
    "places",
    "advice",
)
"""Modules whose `hint` takes an exception."""
OF_JOBS = ("environment", "places")
"""Those that speak of a job, whose program trains."""
OF_LAST_LINES = ("arguments", "tools")
"""Modules whose `line_hint` takes a line."""


def remedy(raised: RaisedException, context: ProgramContext) -> str:
    """What helps against the exception that ended a program; "" if nothing is known."""
    one_line = replace(raised, message=" ".join(raised.message.split()))
    modules = [each for each in OF_EXCEPTIONS if not (context.serving and each in OF_JOBS)]
    return _first(modules, "hint", one_line, context)


def last_line_remedy(line: str, context: ProgramContext) -> str:
    """What helps where a program ended without an exception, by its last line on stderr; "" if nothing is known."""
    return _first(OF_LAST_LINES, "line_hint", line, context)


def _first(modules: Sequence[str], function: str, failure: RaisedException | str, context: ProgramContext) -> str:
    for module in modules:
        try:
            # Imported here: a program that does not fail needs none of them, and what they import a user's
            # requirements.txt may have broken.
            text: str = getattr(importlib.import_module(f"berth.runtime.hints.{module}"), function)(failure, context)
        except Exception:  # a user's files and messages can be anything
            continue
        if text:
            return text
    return ""
