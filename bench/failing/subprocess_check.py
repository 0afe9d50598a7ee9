"""Starts another script with check=True, which fails."""

import subprocess
import sys

subprocess.run([sys.executable, "work.py"], check=True)
