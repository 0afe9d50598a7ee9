"""A child process with a time limit that holds even where the child can't be killed.

Inside a hung driver a process sleeps in the kernel (state D in ps), and SIGKILL waits with it until the driver comes
back, if it ever does. subprocess.run would wait as long, beyond its own time limit; here the child is left behind.
"""

import contextlib
import subprocess
from collections.abc import Mapping, Sequence

KILLED_SECONDS = 2.0  # for a killed child to be gone; any but a sleeper in the kernel goes at once


def run(
    command: Sequence[str],
    limit: float,
    environ: Mapping[str, str],
    *,
    stderr: int = subprocess.PIPE,
    cwd: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """As subprocess.run, without input and with the output as text; subprocess.TimeoutExpired after `limit` seconds."""
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
        said, errors = child.communicate(timeout=limit)
        return subprocess.CompletedProcess(command, child.returncode, said, errors)
    finally:
        end(child)


def end(child: subprocess.Popen[str]) -> None:
    """Kill the child if it still runs, and wait for it, but not for ever: one that stays ends with its container."""
    if child.returncode is None:
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(KILLED_SECONDS)
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
