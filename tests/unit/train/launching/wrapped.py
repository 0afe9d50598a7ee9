"""Runs a rank's wrapper in a process, for the tests."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from berth.train.failures.failure import FailureReport
from berth.train.launching.runfolder import Program, Relay, RunFolder


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait for a condition that another process makes true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def program(folder: RunFolder, **changes: Any) -> Program:
    """A Program that runs train.py of the run folder without ranks. `changes`: other values of fields."""
    fields: dict[str, Any] = {
        "command": (sys.executable, "train.py"),
        "cwd": str(folder.path),
        "environment": {"PATH": os.environ["PATH"], "SM_CURRENT_HOST": "algo-2", "PYTHONUNBUFFERED": "1"},
        "host": "algo-2",
        "code_dir": str(folder.path),
        "name": "train.py",
        "world_size": 0,
        "ranks_per_host": 0,
        "prefix_other_ranks": False,
        "shell": False,
        **changes,
    }
    return Program(**fields)


class Wrapped:
    """A wrapper process. `log`: the output that reached the host's log."""

    def __init__(self, folder: RunFolder, rank_program: Program, environ: Mapping[str, str] = {}) -> None:
        self.folder = folder
        folder.write_program(rank_program)
        self._output: list[bytes] = []
        self._relay = Relay(folder, self._output.append)
        command = [sys.executable, "-P", "-m", "berth.train.launching.rank", str(folder.path)]
        self.process = subprocess.Popen(command, env={**os.environ, **environ})

    @property
    def log(self) -> bytes:
        return b"".join(self._output)

    def wait(self) -> int:
        code = self.process.wait(timeout=120)
        self._relay.close()
        return code

    @property
    def report(self) -> FailureReport:
        (report,) = self.folder.reports()
        return report
