"""The real SageMaker SDK in an environment of its own, and the data and model that its jobs take."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
import pytest

from berth.images import engine, labels, pins

SCRIPT = Path(__file__).with_name("fit_and_predict.py")
SDK2 = pins.ROOT / ".venv-sdk2" / "bin" / "python"


@pytest.fixture(scope="session")
def client() -> docker.DockerClient:
    return engine.connect()


Fit = Callable[..., dict[str, Any]]


@pytest.fixture
def fit(tmp_path: Path, client: docker.DockerClient) -> Fit:
    """Runs fit_and_predict.py under SDK v2, with nothing of the developer's own AWS settings; gives what it printed."""

    def run(**job: Any) -> dict[str, Any]:
        job["work"] = str(tmp_path)
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
                [SDK2, SCRIPT, json.dumps(job)],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                timeout=800,
            )
        sys.stdout.write((tmp_path / "sdk.log").read_text())
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        assert lines, f"the SDK's program ended with {done.returncode} and no result"
        result: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
        return result | {"log": (tmp_path / "sdk.log").read_text() + done.stdout}

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
