"""Starts another script and passes its exit code on."""

import subprocess
import sys

sys.exit(subprocess.call([sys.executable, "work.py"]))
