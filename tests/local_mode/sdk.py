"""Runs a program in the environment of a real SageMaker SDK, v2 or v3."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from berth.images.pins import pins

STARTUP = Path(__file__).with_name("startup")
PYTHON = {version: pins.ROOT / f".venv-sdk{version}" / "bin" / "python" for version in (2, 3)}
# Telemetry would make the SDK call STS.
CONFIG = "SchemaVersion: '1.0'\nSageMaker:\n  PythonSDK:\n    Modules:\n      TelemetryOptOut: true\n"


def run(program: Path, argument: str, *, version: int, work: Path) -> tuple[Any, str]:
    """Runs a program with one argument in the folder `work`, without the developer's AWS settings.

    Returns the JSON of its last line that begins with RESULT, and its whole output.
    """
    (work / "sagemaker-config.yaml").write_text(CONFIG)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(work),
        "PYTHONPATH": str(STARTUP),
        "AWS_ACCESS_KEY_ID": "dummy",
        "AWS_SECRET_ACCESS_KEY": "dummy",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
        "SAGEMAKER_USER_CONFIG_OVERRIDE": str(work / "sagemaker-config.yaml"),
    }
    if "DOCKER_HOST" in os.environ:
        environment["DOCKER_HOST"] = os.environ["DOCKER_HOST"]
    with (work / "sdk.log").open("w") as log:
        process = subprocess.run(
            [PYTHON[version], program, argument],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            timeout=800,
        )
    output = (work / "sdk.log").read_text()
    sys.stdout.write(output + process.stdout)  # the SDK's errors go to either stream
    lines = [line for line in process.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, f"the SDK's program ended with {process.returncode} and no result"
    return json.loads(lines[-1].removeprefix("RESULT ")), output + process.stdout
