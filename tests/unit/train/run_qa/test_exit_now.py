"""How a rank leaves: with its code, everything printed, and those heard who registered for the end."""

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, threading, time
from berth.train.run_qa.program import exit_now
atexit.register(print, "heard")
threading.Thread(target=time.sleep, args=(900,)).start()
print("last words", end=" ")
exit_now(3)
"""


@pytest.mark.slow
def test_a_rank_leaves_at_once_with_its_code_and_all_that_it_said() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (3, "last words heard\n", "")
