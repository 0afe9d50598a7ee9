"""Runs failing programs as a job does, and returns the hint for their failure."""

import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from berth.runtime.hints.program import ProgramContext, RaisedException
from berth.runtime.hints.table import last_line_remedy, remedy

NOWHERE = ProgramContext(Path("/nowhere"))
_FRAME = re.compile(r'^\s+File "([^"]+)", line \d+', re.MULTILINE)
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*)(?:: (.*))?$")


def raised_by(code: str | Callable[[], object], file: Path) -> RaisedException:
    """The exception of code that runs in this process as `file`, or of a function."""
    try:
        if callable(code):
            code()
        else:
            exec(compile(code, str(file), "exec"), {"__name__": file.stem})
    except BaseException as error:
        trace, files = error.__traceback__, []
        while trace is not None:
            files.append(trace.tb_frame.f_code.co_filename)
            trace = trace.tb_next
        return RaisedException(type(error).__name__, str(error), files)
    raise AssertionError("nothing was raised")


def remedy_in_process(folder: Path, code: str, environ: Mapping[str, str] = {}) -> str:
    """Like `remedy_of` for a train.py with this code, without a new process: it shares the imported libraries."""
    return remedy(raised_by(code, folder / "train.py"), ProgramContext(folder, environ=environ))


def run(
    folder: Path, *arguments: str, program: str = "train.py", environ: Mapping[str, str] = {}
) -> subprocess.CompletedProcess[str]:
    """Run the program as its rank does: in the source folder, which is on Python's path."""
    return subprocess.run(
        [sys.executable, program, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", **environ},
        capture_output=True,
        text=True,
    )


def remedy_of(folder: Path, *arguments: str, program: str = "train.py", environ: Mapping[str, str] = {}) -> str:
    """The hint for the failure of that program."""
    failed = run(folder, *arguments, program=program, environ=environ)
    assert failed.returncode != 0
    command: Sequence[str] = [sys.executable, program, *arguments]
    context = ProgramContext(folder, command, {"PYTHONPATH": str(folder), **environ})
    lines = failed.stderr.strip().splitlines()
    if "Traceback (most recent call last):" not in lines:
        return last_line_remedy(lines[-1], context)
    first = max(index for index, line in enumerate(lines) if line.startswith("  File ")) + 1
    text = next(index for index in range(first, len(lines)) if not lines[index].startswith(" "))
    match = _EXCEPTION.match(" ".join(lines[text:]))
    assert match, lines
    return remedy(RaisedException(match[1], match[2] or "", _FRAME.findall(failed.stderr)), context)
