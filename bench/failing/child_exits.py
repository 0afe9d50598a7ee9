"""Starts a script that ends itself with a text."""

import subprocess
import sys

subprocess.run([sys.executable, "exit_lines.py"], check=True)
