"""Checks a subprocess that is killed, as by the kernel for memory."""

import subprocess
import sys

CHILD = "import os, signal; print('tokenizing', flush=True); os.kill(os.getpid(), signal.SIGKILL)"


def tokenize() -> None:
    subprocess.run([sys.executable, "-c", CHILD], check=True)


tokenize()
