"""Runs a launcher of examples/ in local mode, in the environment of SDK v2 or v3.

Usage: python run_example.py JSON, with work (a folder to write in) and command (the launcher and its arguments). Prints
RESULT and, as JSON, the job's error, empty after success.
"""

import json
import os
import runpy
import sys
import tempfile

job = json.loads(sys.argv[1])
os.chdir(job["work"])
tempfile.tempdir = job["work"]  # for the containers' folders, by which the cleanup finds the containers
sys.argv = job["command"]
error = ""
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except Exception as failure:
    error = f"{type(failure).__name__}: {failure}"
print("RESULT " + json.dumps(error))
