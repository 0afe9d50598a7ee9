"""The end of a command's own child processes, and exceptions as one line."""

import os
import time
from pathlib import Path

import pytest

from berth.runtime.subprocesses import one_line, run


def test_child_processes_are_killed_with_the_command(tmp_path: Path) -> None:
    """gpu-check measures one thing after another; a process that one leaves behind would slow down the next."""
    done = run(["sh", "-c", f"sleep 600 >&- 2>&- & echo $! >{tmp_path}/pid"], 60, os.environ)
    assert done.returncode == 0
    status = Path(f"/proc/{int((tmp_path / 'pid').read_text())}/stat")
    deadline = time.monotonic() + 10
    while status.exists() and status.read_text().split()[2] != "Z" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not status.exists() or status.read_text().split()[2] == "Z"


@pytest.mark.parametrize(
    ("error", "line"),
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
def test_one_line(error: Exception, line: str) -> None:
    assert one_line(error) == line
