"""Explains programs that left no record, only from their stderr."""

from collections.abc import Sequence
from pathlib import Path

from berth.runtime.hints.program import ProgramContext
from berth.train.failures.ends import Ends
from berth.train.failures.explain import Explanation, ProgramEnd, explain
from berth.train.failures.stderr_text import StderrText

ENDED_AT = 1000.0


def explain_printed(
    lines: Sequence[str],
    code: int = 1,
    name: str = "train.py",
    later: Sequence[str] = (),
    **known: bool,
) -> Explanation:
    """Explain the end of the program `name`: `lines` on stderr came 5 s before its end, `later` lines just before."""
    stderr = StderrText()
    for line in lines:
        stderr.add(line, ENDED_AT - 5)
    for line in later:
        stderr.add(line, ENDED_AT)
    context = ProgramContext(Path("/opt/ml/code"))
    return explain(ProgramEnd(name, f"{name} on algo-1", 7, code, ENDED_AT, Ends(), stderr, context, **known))


def ending_sentence(stderr: str, code: int = 1, name: str = "train.py") -> str:
    """The sentence for a text that came just before the end."""
    return explain_printed((), code, name, stderr.splitlines()).sentence
