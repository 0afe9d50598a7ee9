"""The hints in their order: the first that has something to say is the remedy.

A hint gets the failure and the program's context, and returns a text that starts with "; ", to stand behind the cause,
or "". A hint that raises must not hide the failure that it explains.
"""

from collections.abc import Callable
from typing import TypeVar

from berth.runtime.hints import missing_modules, save_strategy
from berth.runtime.hints.program import ProgramContext, RaisedException


def _removed_api(raised: RaisedException, context: ProgramContext) -> str:
    # Imported here: it costs 25 ms, which a program that does not fail can do without.
    from berth.runtime.hints.removed_apis import removed_api_hint

    return removed_api_hint(raised.kind, raised.message, raised.files, context.code_dir)


def _removed_option(line: str, context: ProgramContext) -> str:
    from berth.runtime.hints.removed_apis import removed_option_hint

    return removed_option_hint(line, context.code_dir)


_Failure = TypeVar("_Failure", RaisedException, str)

EXCEPTION_HINTS: tuple[Callable[[RaisedException, ProgramContext], str], ...] = (
    missing_modules.hint,
    _removed_api,
    save_strategy.hint,
)
LAST_LINE_HINTS: tuple[Callable[[str, ProgramContext], str], ...] = (_removed_option,)


def remedy(raised: RaisedException, context: ProgramContext) -> str:
    """What helps against the exception that ended a program; "" if nothing is known."""
    return _first(EXCEPTION_HINTS, raised, context)


def last_line_remedy(line: str, context: ProgramContext) -> str:
    """What helps where a program ended without an exception, by its last line on stderr; "" if nothing is known."""
    return _first(LAST_LINE_HINTS, line, context)


def _first(
    hints: tuple[Callable[[_Failure, ProgramContext], str], ...], failure: _Failure, context: ProgramContext
) -> str:
    for hint in hints:
        try:
            text = hint(failure, context)
        except Exception:  # a user's files and messages can be anything
            continue
        if text:
            return text
    return ""
