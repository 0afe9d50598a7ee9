"""A function in a process of its own, with a time limit: whatever becomes of it, the caller gets a value or a sentence.

An error in a CUDA kernel leaves its process without a working GPU, NCCL may wait for ever, a driver may crash: none of
that may reach the next check. The child is a new interpreter (a process that forked could not use CUDA) in a process
group of its own, which ends with it: ranks and compilers that it started go too.
"""

import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

_KILLED_SECONDS = 2.0
_LAST_SECONDS = 15.0  # for an orderly end, once the result is there: the driver frees memory, caches are written


@dataclass(frozen=True, slots=True)
class Ended:
    """How a function ended: its value, or in `error` one line that says why there is none, and the traceback."""

    value: Any = None
    error: str = ""
    trace: str = ""


def isolated(function: Callable[[], Any], limit: float, environment: Mapping[str, str] | None = None) -> Ended:
    """Calls `function`, which can be pickled, in a child that has `limit` seconds; `environment` adds to this one's.

    What the child prints goes to stderr.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(function, dict(environment or {}), sender))
    deadline = time.monotonic() + limit
    process.start()
    sender.close()  # so that the child's death closes the pipe
    try:
        if not wait([receiver], timeout=max(0.0, deadline - time.monotonic())):
            return Ended(error=f"it took longer than {limit:.0f} s and was stopped")
        ended = receiver.recv()
        process.join(_LAST_SECONDS)
        assert isinstance(ended, Ended)
        return ended
    except EOFError:
        process.join(_LAST_SECONDS)
        return Ended(error=_death(process.exitcode))
    finally:
        _end(process)
        receiver.close()


def sentence(error: BaseException) -> str:
    """An exception as one line: its type and the line that says what happened.

    The last line where the text is a traceback (of a rank), else the first, with the next one where it ends in a colon
    (torch's `backend='inductor' raised:`).
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any(line.startswith("Traceback ") for line in lines):
        return lines[-1]
    said = " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def _child(function: Callable[[], Any], environment: Mapping[str, str], sender: Connection) -> None:
    os.setsid()
    os.dup2(2, 1)
    os.environ.update(environment)
    try:
        ended = Ended(function())
    except Exception as error:
        ended = Ended(error=sentence(error), trace=traceback.format_exc())
    sender.send(ended)
    sender.close()


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"it was killed by {signal.Signals(-code).name}"
    return f"it ended with exit code {code} before it had a result"


def _end(process: Any) -> None:
    """Kills what is left of the child's group, and the child itself if it has not come as far as to make one."""
    for kill in (lambda: os.killpg(process.pid, signal.SIGKILL), process.kill):
        try:
            kill()
        except (ProcessLookupError, PermissionError):
            continue
    process.join(_KILLED_SECONDS)
    if process.is_alive():
        # Inside a hung driver not even SIGKILL ends it (child.py): it is left behind, by the interpreter too, which
        # would join it before it ends itself.
        multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]
