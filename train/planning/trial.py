"""Tries in a child process whether something can be loaded in this container."""

import subprocess
import sys
from collections.abc import Mapping

from berth.runtime import subprocesses
from berth.runtime.codes import signal_name

_OBSTACLE = "obstacle: "


def try_loading(code: str, arguments: tuple[str, ...], environ: Mapping[str, str], limit: float) -> tuple[str, str]:
    """Run Python code that loads something, for at most `limit` seconds.

    Returns its output, and why it failed, empty if it didn't: its last line that begins with `obstacle: `, otherwise
    its last line.
    """
    command = [sys.executable, "-P", "-c", code, *arguments]
    try:
        done = subprocesses.run(command, limit, environ, stderr=subprocess.STDOUT, cwd="/")
    except subprocess.TimeoutExpired:
        return "", f"loading it took longer than {limit:.0f} s"
    if done.returncode == 0:
        return done.stdout, ""
    if done.returncode < 0:
        return "", f"loading it crashed ({signal_name(-done.returncode)})"
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    obstacles = [line for line in lines if line.startswith(_OBSTACLE)]
    reason = (obstacles or lines or ["it failed without an error message"])[-1]
    return "", reason.removeprefix(_OBSTACLE)
