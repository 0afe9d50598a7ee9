"""Containers of the inference image that serve a MiniLM."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.models.containers import Container

from berth.images.pins import pins, pins_file
from tests.images.conftest import MadeOnce
from tests.images.serve.served import Served

PROFILE = os.environ.get("BERTH_PROFILE", pins.DEFAULT_PROFILE)
IMAGE = os.environ.get("BERTH_IMAGE") or f"berth-serve:{PROFILE}"
# The image that serves on GPUs has no OpenVINO.
collect_ignore = ["test_graphs.py"] if pins_file.load().profile(PROFILE).cuda else []


MAKE_MODEL = """
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer
torch.manual_seed(0)
AutoModelForQuestionAnswering.from_pretrained("/pretrained").save_pretrained("/made")
AutoTokenizer.from_pretrained("/pretrained").save_pretrained("/made")
"""


@pytest.fixture(scope="session")
def model(client: docker.DockerClient, pretrained: Path, made_once: MadeOnce) -> Path:
    """MiniLM with a head of random numbers, and without a graph.

    The image makes it, because `push` tests on machines without torch.
    """

    def make(folder: Path) -> None:
        client.containers.run(
            IMAGE,
            ["-c", MAKE_MODEL],
            entrypoint=["python"],
            user=f"{os.getuid()}:{os.getgid()}",
            environment={"HOME": "/tmp"},
            network_mode="none",
            volumes=[f"{pretrained}:/pretrained:ro", f"{folder}:/made"],
            remove=True,
        )

    return made_once("model", make)


@pytest.fixture(scope="session")
def model_with_graph(model: Path, made_once: MadeOnce) -> Path:
    """The same model with its graph for OpenVINO, as a training job saves it."""

    def make(folder: Path) -> None:
        from berth.runtime.engines import convert
        from berth.runtime.engines.graph import FOLDER
        from berth.runtime.engines.model_folder import find

        shutil.copytree(model, folder / "model")
        convert.convert(find(folder / "model"), folder / "model" / FOLDER)

    return made_once("with-graph", make) / "model"


StartContainer = Callable[..., Container]
Serve = Callable[..., Served]


@pytest.fixture(scope="module")
def start(client: docker.DockerClient) -> Iterator[StartContainer]:
    """Returns a function that starts a container, with two CPUs by default: `start(model, {"NAME": "value"},
    mem_limit="1g")`. The container is removed after the module's tests, which fail if it logged a traceback, unless its
    handler is made to fail (`faulty`). `at`: the path of the model's folder in the container.
    """
    containers: list[tuple[Container, bool]] = []

    def start_container(
        model: Path,
        environment: Mapping[str, str] | None = None,
        *,
        at: str = "/opt/ml/model",
        faulty: bool = False,
        **options: Any,
    ) -> Container:
        container = client.containers.run(
            IMAGE,
            detach=True,
            volumes=[f"{model}:{at}:ro"],
            environment=dict(environment or {}),
            ports={"8080/tcp": ("127.0.0.1", None)},
            labels={"berth.test": "1"},
            **{"nano_cpus": 2_000_000_000, **options},
        )
        containers.append((container, faulty))
        return container

    yield start_container
    for container, faulty in containers:
        log = container.logs().decode()
        print(log[-20_000:])
        container.remove(force=True)
        assert faulty or "Traceback" not in log


@pytest.fixture(scope="module")
def serve_model(start: StartContainer) -> Serve:
    """Like `start`, but waits until the model is ready."""

    def serve(*arguments: Any, **options: Any) -> Served:
        served = Served(start(*arguments, **options))
        served.wait_until_ready()
        return served

    return serve
