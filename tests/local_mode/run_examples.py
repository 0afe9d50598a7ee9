"""Run by the environment of SDK v2 or v3: launchers of examples/ in local mode, one after the other.

Usage: python run_examples.py JSON, with work, a folder to write in, and jobs, by name a launcher and its arguments.
Each job has a folder of its name in work. Prints JOB and the name before each, at the end RESULT and, as JSON, the
error of each, empty if it ended well.
"""

import json
import os
import runpy
import sys
import tempfile
from pathlib import Path


def run(name: str, command: list[str]) -> str:
    folder = Path(told["work"], name)
    folder.mkdir()
    os.chdir(folder)
    tempfile.tempdir = str(folder)  # where the containers' folders lie, by which they are found again
    sys.argv = command
    print(f"JOB {name}", flush=True)
    try:
        runpy.run_path(command[0], run_name="__main__")
    except Exception as error:  # the next job runs all the same
        return f"{type(error).__name__}: {error}"
    return ""


told = json.loads(sys.argv[1])
print("RESULT " + json.dumps({name: run(name, command) for name, command in told["jobs"].items()}))
