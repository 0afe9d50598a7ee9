"""A handler in the image: its packages, a gigabyte of output, and a container without capabilities."""

import json
import shutil
import time
from pathlib import Path

import pytest
from docker.types import LogConfig

from tests.doubles.package_index import wheel
from tests.files import write_files
from tests.images.serve.conftest import Serve, StartContainer
from tests.images.serve.served import Served

HANDLER = """
import vendored

def model_fn(model_dir, context):
    return vendored.VALUE

def predict_fn(data, model, context):
    if data == "print":
        line = "x" * 999_999
        for _ in range(1000):
            print(line)
    return [model, data, context.get_request_header(0, "X-Amzn-SageMaker-Custom-Attributes")]
"""
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that consists of code, with a wheel next to it."""
    texts = {"code/inference.py": HANDLER, "code/requirements.txt": "--no-index --find-links .\nvendored\n"}
    folder = write_files(tmp_path_factory.mktemp("handler") / "model", texts)
    (folder / "code/vendored-1.0-py3-none-any.whl").write_bytes(wheel("vendored", "VALUE = 7\n"))
    return folder


@pytest.fixture(scope="module")
def served(serve_model: Serve, folder: Path) -> Served:
    small_log = LogConfig(type="json-file", config={"max-size": "2m"})
    return serve_model(folder, {"SAGEMAKER_MODEL_SERVER_TIMEOUT": "20"}, faulty=True, log_config=small_log)


def invoke(served: Served, data: str) -> tuple[int, object]:
    status, body, _ = served.exchange("POST", "/invocations", json.dumps(data).encode())
    return status, json.loads(body)


def test_handler_runs_with_its_packages(served: Served) -> None:
    status, body, headers = served.exchange("POST", "/invocations", b'"a"', **{ATTRIBUTES: "trace=1"})
    assert (status, json.loads(body), headers[ATTRIBUTES]) == (200, [7, "a", "trace=1"], "trace=1")
    assert served.ping()[:2] == (200, {"status": "ready", "handler": "the model's own"})
    assert served.run("import importlib.util as u; print(u.find_spec('vendored'))") == "None"


def test_gigabyte_of_output_does_not_block_ping(served: Served) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        printing = pool.submit(invoke, served, "print")
        pings = []
        while not printing.done():
            pings.append(served.ping())
            time.sleep(0.1)
    assert {status for status, _, _ in pings} == {200}
    assert printing.result()[0] in (200, 504)  # depends on how fast the engine reads the output
    deadline = time.monotonic() + 30
    while invoke(served, "well")[0] != 200:
        assert time.monotonic() < deadline


def test_server_needs_no_capabilities_and_no_writable_root(
    serve_model: Serve, folder: Path, model: Path, tmp_path: Path
) -> None:
    """Starts a handler with packages, and a model whose graph is made at start."""
    bare = {"user": "1000:1000", "read_only": True, "tmpfs": {"/tmp": "exec"}, "cap_drop": ["ALL"]}
    assert invoke(serve_model(folder, **bare), "a") == (200, [7, "a", None])
    readable = tmp_path / "model"
    shutil.copytree(model, readable)
    for path in (readable, *readable.iterdir()):
        path.chmod(0o755)
    ours = serve_model(readable, **bare)
    status, body, _ = ours.ask({"question": "Who?", "context": "It is me."})
    assert (status, body["answer"] in "It is me.") == (200, True)
    assert ours.run("import os; print(os.getuid())") == "1000"


def test_unreadable_config_is_reported(start: StartContainer, tmp_path: Path) -> None:
    (tmp_path / "config.json").touch(0o600)
    tmp_path.chmod(0o700)
    container = start(tmp_path, {"BERTH_FAILURE_GRACE": "0"}, user="1000:1000")
    assert container.wait(timeout=60)["StatusCode"] == 1
    sentence = "/opt/ml/model/config.json can't be read by this container's user (1000): give it the right to"
    assert f"berth: error: {sentence}" in container.logs().decode().splitlines()
