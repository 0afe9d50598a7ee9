"""The output of a program on this machine, with a time-out that holds even if the program hangs in the kernel."""

import os
import signal
import subprocess
from collections.abc import Sequence

PATIENCE_S = 10.0
"""Default time-out in seconds: a program whose driver or daemon hangs never ends."""


def ask(command: Sequence[str], patience_s: float = PATIENCE_S) -> str:
    """The stripped stdout of a command; empty if it is missing, fails or takes too long.

    It has no input and no terminal to prompt on. It runs in its own process group, which is killed after the time-out
    without waiting for its end: `subprocess.run` would wait for ever for a process that hangs in the kernel, for
    example in a GPU's driver.
    """
    no_input = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            command, stdin=no_input, stdout=subprocess.PIPE, stderr=no_input, start_new_session=True
        )
    except OSError:
        return ""
    try:
        output, _ = process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        return ""
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            if process.stdout is not None:
                process.stdout.close()
    return output.decode(errors="replace").strip() if process.returncode == 0 else ""
