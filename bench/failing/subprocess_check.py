"""Starts another script and lets its failure end this one."""

import subprocess
import sys

subprocess.run([sys.executable, "work.py"], check=True)
