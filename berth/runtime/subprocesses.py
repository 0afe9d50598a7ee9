"""Runs a command or a function in a child process with a time limit that holds even if the child can't be killed.

A process in a hung driver sleeps in the kernel (state D in ps) and does not die of SIGKILL until the driver returns, if
it ever does. subprocess.run and multiprocessing would wait for it beyond their time limit; here the child is left
behind.
"""

import contextlib
import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_KILLED_SECONDS = 2.0  # wait for a killed child; it dies at once unless it sleeps in the kernel
_LAST_SECONDS = 15.0  # wait for a child after its result: the driver frees memory, caches are written


def run(
    command: Sequence[str],
    limit: float,
    environ: Mapping[str, str],
    *,
    stderr: int = subprocess.PIPE,
    cwd: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Like subprocess.run, without input and with output as text; subprocess.TimeoutExpired after `limit` seconds."""
    child = subprocess.Popen(
        command,
        env=dict(environ),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        errors="replace",
    )
    try:
        output, errors = child.communicate(timeout=limit)
        return subprocess.CompletedProcess(command, child.returncode, output, errors)
    finally:
        _end_command(child)


def _end_command(child: subprocess.Popen[str]) -> None:
    """Kill the child if it still runs, and wait a short time for it; if it stays, it ends with its container."""
    if child.returncode is None:
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_KILLED_SECONDS)
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a function: its value, or one line in `error` and the traceback, if there is one."""

    value: Any = None
    error: str = ""
    trace: str = ""


def call(function: Callable[[], Any], limit: float, environment: Mapping[str, str] | None = None) -> CallResult:
    """Call `function`, which must be picklable, in a child process for at most `limit` seconds.

    environment: variables to add. The child is a new interpreter, because a forked process could not use CUDA. It has
    its own process group, which is killed at the end together with ranks and compilers that it started. Its output goes
    to stderr.
    """
    import multiprocessing  # slow to import, and not needed by `run`, which every job calls at its start
    from multiprocessing.connection import wait

    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_call, args=(function, dict(environment or {}), sender))
    deadline = time.monotonic() + limit
    process.start()
    sender.close()  # so that the child's death closes the pipe
    try:
        if not wait([receiver], timeout=max(0.0, deadline - time.monotonic())):
            return CallResult(error=f"it took longer than {limit:.0f} s and was stopped")
        result = receiver.recv()
        process.join(_LAST_SECONDS)
        assert isinstance(result, CallResult)
        return result
    except EOFError:
        process.join(_LAST_SECONDS)
        return CallResult(error=_death(process.exitcode))
    finally:
        _end_group(process)
        receiver.close()


def one_line(error: BaseException) -> str:
    """An exception as one line: its type and message.

    If the message is a traceback (of a rank): its last line. Otherwise the first line of the message, with the next one
    if it ends with a colon (torch's `backend='inductor' raised:`).
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if any(line.startswith("Traceback ") for line in lines):
        return lines[-1]
    message = " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _call(function: Callable[[], Any], environment: Mapping[str, str], sender: "Connection") -> None:
    os.setsid()
    os.dup2(2, 1)
    os.environ.update(environment)
    try:
        result = CallResult(function())
    except Exception as error:
        result = CallResult(error=one_line(error), trace=traceback.format_exc())
    sender.send(result)
    sender.close()


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        return f"it was killed by {signal.Signals(-code).name}"
    return f"it ended with exit code {code} before it had a result"


def _end_group(process: Any) -> None:
    """Kill the child's process group, and the child itself in case it has not created the group yet."""
    for kill in (lambda: os.killpg(process.pid, signal.SIGKILL), process.kill):
        try:
            kill()
        except (ProcessLookupError, PermissionError):
            continue
    process.join(_KILLED_SECONDS)
    if process.is_alive():
        from multiprocessing.process import _children  # type: ignore[attr-defined]

        # Forget the child; otherwise the interpreter would wait for it at exit.
        _children.discard(process)
