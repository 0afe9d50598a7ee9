"""Starts another script with os.system and raises its own exception if that fails."""

import os
import sys


def launch() -> None:
    status = os.system(f"{sys.executable} work.py --epochs 3")
    if status != 0:
        raise RuntimeError(f"training failed with status {os.waitstatus_to_exitcode(status)}")


launch()
