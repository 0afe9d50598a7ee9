"""Runs Python files with the SDK of this environment, v2 or v3, each up to its request for a job or an endpoint.

Usage: python run_until_request.py JSON, a list of command lines (file and arguments). Prints RESULT and, as JSON, for
each of them the requests to SageMaker by operation; none is sent.
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


def requests_of(command: list[str], made: Path) -> Any:
    """Runs a file in a forked process, which has this process's imports and ends at the request."""
    made.unlink(missing_ok=True)
    if child := os.fork():
        os.waitpid(child, 0)
        return json.loads(made.read_text())

    def end(_: dict[str, Any]) -> dict[str, Any]:
        made.write_text(json.dumps(aws_double.requests))
        os._exit(0)  # an exception of any kind would be caught by v3

    aws_double.install({"CreateTrainingJob": end, "CreateTransformJob": end, "CreateEndpoint": end})
    sys.argv = command
    try:
        runpy.run_path(command[0], run_name="__main__")
    finally:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        os._exit(1)


# Of v2 and of v3; each takes seconds.
for module in ("sagemaker.estimator", "sagemaker.train.model_trainer"):
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module(module)
file = Path(tempfile.mkdtemp(), "requests.json")
print("RESULT " + json.dumps([requests_of(command, file) for command in json.loads(sys.argv[1])]))
