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

SCRIPT = Path(__file__).with_name("fit_and_predict.py")
SDK2 = pins.ROOT / ".venv-sdk2" / "bin" / "python"


@pytest.fixture(scope="session")
def client() -> docker.DockerClient:
    return engine.connect()


Run = Callable[[Path, str], tuple[Any, str]]
Fit = Callable[..., dict[str, Any]]


@pytest.fixture
def run_sdk(tmp_path: Path) -> Run:
    """Runs a program under SDK v2 with one argument and nothing of the developer's own AWS settings.

    Gives its result, the JSON of its last line that begins with RESULT, and everything that it printed.
    """

    def run(program: Path, argument: str) -> tuple[Any, str]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "AWS_ACCESS_KEY_ID": "dummy",
            "AWS_SECRET_ACCESS_KEY": "dummy",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "SAGEMAKER_SUPPRESS_V2_WARNING": "1",
        }
        if "DOCKER_HOST" in os.environ:
            environment["DOCKER_HOST"] = os.environ["DOCKER_HOST"]
        with (tmp_path / "sdk.log").open("w") as log:
            done = subprocess.run(
                [SDK2, program, argument],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                timeout=800,
            )
        said = (tmp_path / "sdk.log").read_text()
        sys.stdout.write(said + done.stdout)  # the SDK's errors go to either
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        assert lines, f"the SDK's program ended with {done.returncode} and no result"
        return json.loads(lines[-1].removeprefix("RESULT ")), said + done.stdout

    return run


@pytest.fixture
def fit(tmp_path: Path, client: docker.DockerClient, run_sdk: Run) -> Iterator[Fit]:
    """Runs fit_and_predict.py; gives what it printed as a dictionary, with the log."""

    def run(**job: Any) -> dict[str, Any]:
        result, log = run_sdk(SCRIPT, json.dumps(job | {"work": str(tmp_path)}))
        return result | {"log": log}

    yield run
    remove_what_the_sdk_left(client, tmp_path)


def remove_what_the_sdk_left(client: docker.DockerClient, work: Path) -> None:
    """Local mode leaves its stopped containers behind, and the network sagemaker-local, which others may use."""
    for container in client.containers.list(all=True, filters={"label": labels.KIT}):
        if container.labels.get("com.docker.compose.project.working_dir", "").startswith(str(work)):
            container.remove(force=True)
    for network in client.networks.list(names=["sagemaker-local"]):
        network.reload()
        if not network.containers:
            network.remove()
