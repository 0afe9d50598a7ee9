"""Runs launchers of examples/ in the environment of SDK v2 or v3, up to the request for a job, which is not sent.

Usage: python example_requests.py JSON, a list of command lines (launcher and arguments). Prints RESULT and the requests
as JSON.
"""

import contextlib
import importlib
import json
import os
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

import aws_double


def request_of(command: list[str], file: Path) -> Any:
    """Runs a launcher in a forked process, which ends at the request; the fork has this process's imports."""
    if child := os.fork():
        os.waitpid(child, 0)
        return json.loads(file.read_text())
    sys.argv = command
    runpy.run_path(command[0], run_name="__main__")
    os._exit(1)


def end(request: dict[str, Any]) -> dict[str, Any]:
    made.write_text(json.dumps(request))
    os._exit(0)  # an exception of any kind would be caught by v3


made = Path(tempfile.mkdtemp(), "request.json")
for package in ("sagemaker.pytorch", "sagemaker.train"):  # of v2 and of v3; each takes seconds
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(package)
aws_double.install({"CreateTrainingJob": end, "CreateTransformJob": end})
print("RESULT " + json.dumps([request_of(command, made) for command in json.loads(sys.argv[1])]))
