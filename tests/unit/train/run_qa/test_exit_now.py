"""Tests the exit of a rank: its code, its output and its atexit functions."""

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, threading, time
from berth.train.run_qa.program import exit_now
atexit.register(print, "atexit")
threading.Thread(target=time.sleep, args=(900,)).start()
print("output", end=" ")
exit_now(3)
"""


@pytest.mark.nightly
def test_exit_now_flushes_and_runs_atexit_functions() -> None:
    result = subprocess.run([sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, timeout=600)
    assert (result.returncode, result.stdout, result.stderr) == (3, "output atexit\n", "")
