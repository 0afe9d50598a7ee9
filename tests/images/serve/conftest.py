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
from tests.images.serve.served import Served

PROFILE = os.environ.get("BERTH_PROFILE", pins.DEFAULT_PROFILE)
IMAGE = os.environ.get("BERTH_IMAGE") or f"berth-serve:{PROFILE}"
# The image that serves on GPUs has no OpenVINO.
collect_ignore = ["test_graphs.py"] if pins_file.load().profile(PROFILE).cuda else []


@pytest.fixture(scope="session")
def model(pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MiniLM with a head of random numbers, and without a graph."""
    # `push` runs without these packages; see test_answers.py.
    import torch
    from transformers import AutoModelForQuestionAnswering

    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    AutoModelForQuestionAnswering.from_pretrained(pretrained).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (folder / name).write_bytes((pretrained / name).read_bytes())
    return folder


@pytest.fixture(scope="session")
def model_with_graph(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model with its graph for OpenVINO, as a training job saves it."""
    from berth.runtime.engines import convert
    from berth.runtime.engines.graph import FOLDER
    from berth.runtime.engines.model_folder import find

    folder = tmp_path_factory.mktemp("with-graph") / "model"
    shutil.copytree(model, folder)
    convert.convert(find(folder), folder / FOLDER)
    return folder


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
