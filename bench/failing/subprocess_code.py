"""Starts another script and exits with its exit code."""

import subprocess
import sys

sys.exit(subprocess.call([sys.executable, "work.py"]))
