"""Programs of this machine, asked about themselves. None of them can keep the asker waiting, nor fill its memory."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress

PATIENCE_S = 10.0
"""Seconds in which a program has answered; one whose driver or daemon hangs never does."""
LONGEST = 1 << 16
"""Bytes of an answer; who goes on after them is stopped."""
_DYING_S = 1.0


def ask(command: Sequence[str], patience_s: float = PATIENCE_S) -> str:
    """What a command prints, stripped; empty if it is not there, fails, says more than LONGEST or takes too long.

    It reads nothing, and has no terminal to ask a person. With what it started it is a group of its own, which is
    killed whole: `subprocess.run` would leave a plugin of the command running, and keep all that is said in memory.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return ""
    assert process.stdout is not None
    deadline = time.monotonic() + patience_s

    def left_s() -> float:
        return max(0.0, deadline - time.monotonic())

    said = b""
    try:
        while len(said) <= LONGEST and select.select([process.stdout], [], [], left_s())[0]:
            piece = os.read(process.stdout.fileno(), LONGEST)
            if not piece:
                break
            said += piece
        if len(said) > LONGEST:
            return ""
        with suppress(subprocess.TimeoutExpired):
            process.wait(left_s())
        return said.decode(errors="replace").strip() if process.poll() == 0 else ""
    finally:
        process.stdout.close()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):  # one that waits in the kernel, for a GPU, can't be killed
                process.wait(_DYING_S)
