"""Fixtures: the real SageMaker SDKs in environments of their own, and data and model for their jobs."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import docker
import pytest

from berth.common import engine, labels
from tests.local_mode.sdk import run

NETWORK = "sagemaker-local"
"""All jobs and endpoints of local mode share it."""
FIT, UNTIL_REQUEST = (Path(__file__).with_name(name) for name in ("fit_and_predict.py", "run_until_request.py"))


@pytest.fixture(scope="session")
def client() -> docker.DockerClient:
    return engine.connect()


Run = Callable[..., tuple[Any, str]]
Fit = Callable[..., dict[str, Any]]


@pytest.fixture
def run_sdk(tmp_path: Path, client: docker.DockerClient) -> Iterator[Run]:
    """sdk.run in this test's folder; what local mode leaves is removed."""
    yield lambda program, argument, *, version=2: run(program, argument, version=version, work=tmp_path)
    remove_what_the_sdk_left(client, tmp_path)


def requests_of(commands: Sequence[Sequence[str]], *, version: int, work: Path) -> list[dict[str, Any]]:
    """The requests of each command line (a Python file and arguments) to SageMaker by operation; none is sent."""
    requests, _ = run(UNTIL_REQUEST, json.dumps(commands), version=version, work=work)
    return list(requests)


@pytest.fixture
def fit(tmp_path: Path, run_sdk: Run) -> Fit:
    """Runs fit_and_predict.py; returns its result and the log as a dictionary."""

    def fitted(**job: Any) -> dict[str, Any]:
        result, log = run_sdk(FIT, json.dumps(job | {"work": str(tmp_path)}))
        return dict(result | {"log": log})

    return fitted


def remove_what_the_sdk_left(client: docker.DockerClient, work: Path) -> None:
    """Removes the stopped containers that local mode leaves."""
    for container in client.containers.list(all=True, filters={"label": labels.KIT}):
        if container.labels.get("com.docker.compose.project.working_dir", "").startswith(str(work)):
            container.remove(force=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Create local mode's network: jobs that start together would each create one of that name."""
    if _starts_the_others(session) and not (client := engine.connect()).networks.list(names=[NETWORK]):
        client.networks.create(NETWORK, labels={"com.docker.compose.network": NETWORK})


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove it after the jobs of all processes, if nobody else uses it."""
    for network in engine.connect().networks.list(names=[NETWORK]) if _starts_the_others(session) else ():
        network.reload()
        if not network.containers:
            network.remove()


def _starts_the_others(session: pytest.Session) -> bool:
    """Whether this process starts those that run the tests."""
    return not hasattr(session.config, "workerinput") and not session.config.option.collectonly
