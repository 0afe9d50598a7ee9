"""Starts another script by os.system and, where that fails, raises an exception of its own."""

import os
import sys


def launch() -> None:
    status = os.system(f"{sys.executable} work.py --epochs 3")
    if status != 0:
        raise RuntimeError(f"training failed with status {os.waitstatus_to_exitcode(status)}")


launch()
