"""The server and its workers in a container of two CPUs: full load, deaths, the time limit, and the stop."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import docker
import pytest
import torch
from docker.models.containers import Container
from transformers import AutoModelForQuestionAnswering

from berth.images import pins

PROFILE = os.environ.get("BERTH_PROFILE", pins.DEFAULT_PROFILE)
IMAGE = f"berth-serve:{PROFILE}"
SHORT = {"question": "What is used?", "context": "This model is used with sagemaker for inference. " * 8}
# As the engine stops a container, but to process 1 alone and without a wait.
FIND_WORKERS = (
    "import os\n"
    "for pid in filter(str.isdigit, os.listdir('/proc')):\n"
    "    try: words = open(f'/proc/{pid}/cmdline').read().split('\\0')\n"
    "    except OSError: continue\n"
    "    if 'berth.serve.workers.process' in words: print(pid)\n"
)


class Served:
    """A container that serves, and its port on the loopback address."""

    def __init__(self, container: Container) -> None:
        self.container = container
        container.reload()
        self.port = int(container.ports["8080/tcp"][0]["HostPort"])

    def ask(self, inputs: Any = None, path: str = "/invocations") -> tuple[int, Any, float]:
        """Status, body and seconds of a POST, or of a GET where nothing is asked."""
        began = time.monotonic()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=90)
        try:
            body = None if inputs is None else json.dumps({"inputs": inputs})
            connection.request("GET" if body is None else "POST", path, body)
            response = connection.getresponse()
            return response.status, json.loads(response.read()), time.monotonic() - began
        finally:
            connection.close()

    def run(self, code: str) -> str:
        """What a Python program prints in the container."""
        done = self.container.exec_run(["timeout", "60", "python", "-c", code])
        assert done.exit_code == 0, done.output.decode()
        return str(done.output.decode()).strip()

    def workers(self) -> list[int]:
        return [int(pid) for pid in self.run(FIND_WORKERS).split()]

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + 90
        while True:
            try:
                if self.ask(path="/ping")[0] == 200:
                    return
            except (OSError, ValueError):
                pass
            assert time.monotonic() < deadline, self.container.logs().decode()
            time.sleep(0.1)


@pytest.fixture(scope="module")
def model(pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MiniLM with a head of random numbers, and without a graph."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    AutoModelForQuestionAnswering.from_pretrained(pretrained).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (folder / name).write_bytes((pretrained / name).read_bytes())
    return folder


Serve = Callable[..., Served]


@pytest.fixture(scope="module")
def serve_model(client: docker.DockerClient, model: Path) -> Iterator[Serve]:
    """`serve_model(NAME=value)`: a container with those variables whose model is ready."""
    containers: list[Container] = []

    def start(**environment: str) -> Served:
        container = client.containers.run(
            IMAGE,
            detach=True,
            volumes=[f"{model}:/opt/ml/model:ro"],
            environment=environment,
            ports={"8080/tcp": ("127.0.0.1", None)},
            nano_cpus=2_000_000_000,
            labels={"berth.test": "1"},
        )
        containers.append(container)
        served = Served(container)
        served.wait_until_ready()
        return served

    yield start
    for container in containers:
        log = container.logs().decode()
        print(log)
        container.remove(force=True)
        assert "Traceback" not in log


@pytest.fixture(scope="module")
def served(serve_model: Serve) -> Served:
    return serve_model()


@pytest.fixture
def full_load(served: Served) -> Iterator[list[tuple[int, Any, float]]]:
    """What eight clients get, which ask again as soon as they are answered."""
    answers: list[tuple[int, Any, float]] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            answers.append(served.ask([SHORT] * 3))

    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(ask) for _ in range(8)]
        yield answers
        done.set()
        for client in clients:
            client.result(90)


def test_openvino_answers_in_float32_by_a_graph_that_the_server_made(served: Served) -> None:
    log = served.container.logs().decode()
    assert "has no graph for OpenVINO: making one takes some seconds" in log
    assert "berth: engine: OpenVINO " in log
    assert "fp32 on 2 threads" in log
    assert served.ask(path="/ping")[:2] == (200, {"status": "ready", "precision": "fp32"})
    libraries = served.run(
        "import re; from pathlib import Path\n"
        "maps = ''.join(p.read_text() for p in Path('/proc').glob('[0-9]*/maps') if p.parent.name != 'self')\n"
        "print(sorted({m for m in re.findall(r'lib(torch|openvino)_?[a-z]*[.]so', maps)}))"
    )
    assert libraries == "['openvino']", "torch went with the process that made the graph"


@pytest.mark.usefixtures("full_load")
def test_ping_is_quick_at_full_load(served: Served) -> None:
    time.sleep(1)
    pings = [served.ask(path="/ping") for _ in range(60)]
    assert {status for status, _, _ in pings} == {200}
    assert sorted(seconds for _, _, seconds in pings)[30] < 0.05


def test_a_worker_that_is_killed_costs_nobody_an_answer(
    served: Served, full_load: list[tuple[int, Any, float]]
) -> None:
    time.sleep(1)
    for _ in range(2):
        (worker,) = served.workers()
        served.run(f"import os; os.kill({worker}, 9)")
        served.wait_until_ready()
        assert served.workers() not in ([worker], [])
        time.sleep(1)
    assert len(full_load) > 8
    assert {status for status, _, _ in full_load} == {200}
    assert served.container.logs().decode().count("a worker has died (SIGKILL): another one is started") == 2


def test_what_takes_too_long_gets_504_in_time(serve_model: Serve) -> None:
    served = serve_model(SAGEMAKER_MODEL_SERVER_TIMEOUT="1", OMP_NUM_THREADS="1")
    assert "1 with 1 threads each" in served.container.logs().decode()
    status, told, seconds = served.ask([{**SHORT, "context": "It is used with sagemaker. " * 60}] * 60)
    assert (status, told["error_type"]) == (504, "too_late")
    assert seconds < 3
    # Nothing of it is computed any more: the next one does not wait behind it.
    assert served.ask(SHORT)[0] == 200


def test_a_stop_answers_what_was_accepted(served: Served) -> None:
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(served.ask, [SHORT] * 6) for _ in range(8)]
        time.sleep(0.3)
        began = time.monotonic()
        served.container.stop(timeout=30)
        assert time.monotonic() - began < 28
        assert {each.result(60)[0] for each in asked} == {200}
    served.container.reload()
    assert served.container.attrs["State"]["ExitCode"] == 0
