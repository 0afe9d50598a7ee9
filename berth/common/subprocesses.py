"""Programs of this machine, asked about themselves. None of them can keep the asker waiting."""

import os
import signal
import subprocess
from collections.abc import Sequence

PATIENCE_S = 10.0
"""Seconds in which a program has answered; one whose driver or daemon hangs never does."""


def ask(command: Sequence[str], patience_s: float = PATIENCE_S) -> str:
    """What a command prints, stripped; empty if it is not there, fails or takes too long.

    It reads nothing, and has no terminal to ask a person. With what it started it is a group of its own, which is
    killed whole, and not waited for: `subprocess.run` would wait for ever for one that hangs in the kernel, for a GPU.
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
