"""Runs a command in a child process with a time limit that holds even if the child can't be killed.

A process in a hung driver sleeps in the kernel (state D in ps) and does not die of SIGKILL until the driver returns, if
it ever does. subprocess.run would wait for it beyond its time limit; here the child is left behind.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

_KILLED_SECONDS = 2.0  # wait for a killed child; it dies at once unless it sleeps in the kernel


def run(
    command: Sequence[str],
    limit: float,
    environ: Mapping[str, str],
    *,
    stderr: int = subprocess.PIPE,
    cwd: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Like subprocess.run, without input and with output as text; subprocess.TimeoutExpired after `limit` seconds. At
    the end all processes that the child has started are killed.
    """
    child = subprocess.Popen(
        command,
        env=dict(environ),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        errors="replace",
        process_group=0,
    )
    try:
        output, errors = child.communicate(timeout=limit)
        return subprocess.CompletedProcess(command, child.returncode, output, errors)
    finally:
        _end_command(child)


def _end_command(child: subprocess.Popen[str]) -> None:
    """Kill the child's process group, and wait a short time for the child; if it stays, it ends with its container."""
    with contextlib.suppress(OSError):  # no process of the group is left
        os.killpg(child.pid, signal.SIGKILL)
    if child.returncode is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_KILLED_SECONDS)
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


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
