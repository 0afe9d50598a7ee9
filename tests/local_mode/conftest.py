"""The real SageMaker SDK in an environment of its own, and the data and model that its jobs take."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from berth.common import engine, labels
from berth.images import pins

FIT, PASTE = (Path(__file__).with_name(name) for name in ("fit_and_predict.py", "paste.py"))
PYTHON = {version: pins.ROOT / f".venv-sdk{version}" / "bin" / "python" for version in (2, 3)}
# With telemetry, the SDK asks AWS who it is.
CONFIG = "SchemaVersion: '1.0'\nSageMaker:\n  PythonSDK:\n    Modules:\n      TelemetryOptOut: true\n"


@pytest.fixture(scope="session")
def client() -> docker.DockerClient:
    return engine.connect()


Run = Callable[..., tuple[Any, str]]
Fit = Callable[..., dict[str, Any]]


@pytest.fixture
def run_sdk(tmp_path: Path, client: docker.DockerClient) -> Iterator[Run]:
    """Runs a program under SDK v2 or v3 with one argument and nothing of the developer's own AWS settings.

    Gives its result, the JSON of its last line that begins with RESULT, and everything that it printed.
    """

    def run(program: Path, argument: str, *, version: int = 2) -> tuple[Any, str]:
        (tmp_path / "sagemaker-config.yaml").write_text(CONFIG)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "AWS_ACCESS_KEY_ID": "dummy",
            "AWS_SECRET_ACCESS_KEY": "dummy",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
            "SAGEMAKER_USER_CONFIG_OVERRIDE": str(tmp_path / "sagemaker-config.yaml"),
        }
        if "DOCKER_HOST" in os.environ:
            environment["DOCKER_HOST"] = os.environ["DOCKER_HOST"]
        with (tmp_path / "sdk.log").open("w") as log:
            done = subprocess.run(
                [PYTHON[version], program, argument],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                timeout=800,
            )
        output = (tmp_path / "sdk.log").read_text()
        sys.stdout.write(output + done.stdout)  # the SDK's errors go to either
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        assert lines, f"the SDK's program ended with {done.returncode} and no result"
        return json.loads(lines[-1].removeprefix("RESULT ")), output + done.stdout

    yield run
    remove_what_the_sdk_left(client, tmp_path)


@pytest.fixture
def paste(run_sdk: Run) -> Callable[..., Any]:
    """`paste(snippet, version=3)`: the requests to SageMaker that it makes, by operation, none of which is sent."""

    def run(snippet: str, *, version: int) -> Any:
        requests, _ = run_sdk(PASTE, snippet, version=version)
        return requests

    return run


@pytest.fixture
def fit(tmp_path: Path, run_sdk: Run) -> Fit:
    """Runs fit_and_predict.py; gives what it printed as a dictionary, with the log."""

    def run(**job: Any) -> dict[str, Any]:
        result, log = run_sdk(FIT, json.dumps(job | {"work": str(tmp_path)}))
        return dict(result | {"log": log})

    return run


def remove_what_the_sdk_left(client: docker.DockerClient, work: Path) -> None:
    """Local mode leaves its stopped containers behind, and the network sagemaker-local, which others may use."""
    for container in client.containers.list(all=True, filters={"label": labels.KIT}):
        if container.labels.get("com.docker.compose.project.working_dir", "").startswith(str(work)):
            container.remove(force=True)
    for network in client.networks.list(names=["sagemaker-local"]):
        network.reload()
        if not network.containers:
            network.remove()
