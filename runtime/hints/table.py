"""The hints in their order: the first that has something to say is the remedy.

A hint gets the failure and the program's context, and returns a text that starts with "; ", to stand behind the cause,
or "". A hint that raises must not hide the failure that it explains.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from berth.runtime.hints.program import ProgramContext, RaisedException

_Failure = TypeVar("_Failure", RaisedException, str)


def remedy(raised: RaisedException, context: ProgramContext) -> str:
    """What helps against the exception that ended a program; "" if nothing is known."""
    # Imported here: a program that does not fail needs none of them.
    from berth.runtime.hints import (
        advice,
        environment,
        hardware,
        missing_modules,
        places,
        relative_imports,
        removed_apis,
        replaced_packages,
        save_strategy,
        tools,
    )

    one_line = replace(raised, message=" ".join(raised.message.split()))
    hints = (
        replaced_packages.hint,
        missing_modules.hint,
        relative_imports.hint,
        removed_apis.exception_hint,
        save_strategy.hint,
        environment.hint,
        hardware.hint,
        tools.exception_hint,
        places.hint,
        advice.hint,
    )
    return _first(hints, one_line, context)


def last_line_remedy(line: str, context: ProgramContext) -> str:
    """What helps where a program ended without an exception, by its last line on stderr; "" if nothing is known."""
    from berth.runtime.hints import arguments, removed_apis, tools

    return _first((removed_apis.line_hint, arguments.hint, tools.line_hint), line, context)


def _first(
    hints: Sequence[Callable[[_Failure, ProgramContext], str]], failure: _Failure, context: ProgramContext
) -> str:
    for hint in hints:
        try:
            text = hint(failure, context)
        except Exception:  # a user's files and messages can be anything
            continue
        if text:
            return text
    return ""
