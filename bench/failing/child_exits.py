"""Starts a script that exits with a text."""

import subprocess
import sys

subprocess.run([sys.executable, "exit_lines.py"], check=True)
