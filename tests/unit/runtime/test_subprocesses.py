"""`call` runs a function in a child process and returns its value or a one-line error, however the child ends."""

import multiprocessing
import os
import signal
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from berth.runtime import subprocesses
from berth.runtime.subprocesses import CallResult, call, one_line


@pytest.mark.parametrize(
    ("function", "error"),
    [
        pytest.param(partial(int, "x"), "ValueError: invalid literal for int() with base 10: 'x'", id="raises"),
        pytest.param(partial(signal.raise_signal, signal.SIGKILL), "it was killed by SIGKILL", id="killed-by-signal"),
        pytest.param(partial(os._exit, 3), "it ended with exit code 3 before it had a result", id="exits"),
    ],
)
def test_failing_function_returns_one_line_error(function: Any, error: str) -> None:
    ended = call(function, limit=60)
    assert (ended.value, ended.error) == (None, error)
    assert ("Traceback" in ended.trace) == error.startswith("ValueError")


def test_hanging_function_is_stopped() -> None:
    began = time.monotonic()
    assert call(partial(time.sleep, 600), limit=1).error == "it took longer than 1 s and was stopped"
    assert time.monotonic() - began < 30


class Sleeper:
    """A process inside a hung driver: it runs on after SIGKILL, and joining it without a limit never ends."""

    pid = 2**22 + 1  # no process has it: the kernel's limit is 2**22

    def kill(self) -> None:
        pass

    def join(self, timeout: float | None = None) -> None:
        assert timeout is not None

    def is_alive(self) -> bool:
        return True


def test_interpreter_does_not_wait_for_unkillable_child() -> None:
    """multiprocessing joins every child that it still lists when the interpreter exits."""
    sleeper = Sleeper()
    children = multiprocessing.process._children  # type: ignore[attr-defined]
    children.add(sleeper)
    try:
        subprocesses._end_group(sleeper)
        assert sleeper not in children
    finally:
        children.discard(sleeper)


def test_child_processes_are_killed_with_the_function(tmp_path: Path) -> None:
    """gpu-check measures one function after another; a process that one leaves behind would slow down the next."""
    script = f"sleep 600 & echo $! >{tmp_path}/pid"
    assert call(partial(subprocess.check_call, ["sh", "-c", script]), limit=60) == CallResult(0)
    status = Path(f"/proc/{int((tmp_path / 'pid').read_text())}/stat")
    deadline = time.monotonic() + 10
    while status.exists() and status.read_text().split()[2] != "Z" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not status.exists() or status.read_text().split()[2] == "Z"


def test_environment_is_set_in_child_only() -> None:
    assert call(partial(os.getenv, "BERTH_TRIED"), limit=60, environment={"BERTH_TRIED": "yes"}) == CallResult("yes")
    assert "BERTH_TRIED" not in os.environ


@pytest.mark.parametrize(
    ("error", "says"),
    [
        pytest.param(
            RuntimeError("\nNo kernel image\nCompile with …"), "RuntimeError: No kernel image", id="several-lines"
        ),
        pytest.param(RuntimeError(), "RuntimeError", id="no-message"),
        pytest.param(
            RuntimeError("backend='inductor' raised:\nInvalidCxxCompiler: None\n\nSet …"),
            "RuntimeError: backend='inductor' raised: InvalidCxxCompiler: None",
            id="second-line-after-colon",
        ),
        pytest.param(
            RuntimeError(
                "-- Process 1 terminated with the following error:\nTraceback (most recent call last):\n"
                "  File …\nArithmeticError: 3 of 9 sums over 2 ranks are wrong\n"
            ),
            "ArithmeticError: 3 of 9 sums over 2 ranks are wrong",
            id="traceback-of-rank",
        ),
    ],
)
def test_one_line(error: Exception, says: str) -> None:
    assert one_line(error) == says
