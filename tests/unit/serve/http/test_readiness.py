"""/ping: it says why a model is not served, and answers quickly while the model computes."""

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
import torch
from starlette.testclient import TestClient
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from berth.serve.http.app import create_app
from tests.unit.serve.in_process import ONE, error_of, failure_of, ready_service, service_of
from tests.unit.small_models import add_graph

pytestmark = pytest.mark.slow


@pytest.fixture
def nan_model(tiny_model: Path, tmp_path: Path) -> Path:
    model = AutoModelForQuestionAnswering.from_pretrained(tiny_model)
    with torch.no_grad():
        model.qa_outputs.bias.fill_(float("nan"))
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path)
    add_graph(tmp_path)
    return tmp_path


FIRST_REQUEST = """
import asyncio, json, sys
from pathlib import Path
from berth.serve.http.app import create_app
from tests.unit.serve.in_process import ONE, ready_service, stop_all

async def ask(app):
    async def receive():
        receive.calls = getattr(receive, "calls", 0) + 1
        if receive.calls > 1:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": json.dumps(ONE).encode()}
    async def send(message):
        sent.append(message)
    sent = []
    scope = {"type": "http", "method": "POST", "path": "/invocations", "headers": [], "query_string": b""}
    await app(scope, receive, send)
    return sent[0]["status"]

app = create_app(ready_service(Path(sys.argv[1])))
known = set(sys.modules)
print(asyncio.run(ask(app)), *sorted(set(sys.modules) - known))
stop_all()
"""


def test_first_request_imports_no_module(tiny_model: Path) -> None:
    """Runs in its own process, because the client of other tests has already imported these modules."""
    command = [sys.executable, "-c", FIRST_REQUEST, str(tiny_model)]
    assert subprocess.run(command, check=True, capture_output=True, text=True, timeout=90).stdout == "200\n"


def test_model_with_nan_scores_never_becomes_ready(nan_model: Path) -> None:
    service, failed = service_of(nan_model), threading.Event()
    service.start(failed.set)
    assert failed.wait(90)
    client = TestClient(create_app(service))
    status, kind, sentence = error_of(client.get("/ping"))
    assert (status, kind) == (503, "not_ready")
    assert "not numbers" in sentence
    assert error_of(client.post("/invocations", json={"inputs": ONE})) == (status, kind, sentence)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("model.safetensors", "the model in {} can't be loaded (SafetensorError: "),
        pytest.param("tokenizer.json", "the tokenizer in {} can't be loaded (", marks=pytest.mark.nightly),
        ("config.json", "{}/config.json can't be read ("),
    ],
)
def test_damaged_file_is_named_by_the_failure(
    tiny_model: Path, tmp_path: Path, name: str, sentence: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for path in filter(Path.is_file, tiny_model.iterdir()):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:40])
    failure = failure_of(tmp_path)
    assert failure.startswith(sentence.format(tmp_path))
    assert "\n" not in failure
    assert "Traceback" not in capfd.readouterr().err


def test_ping_answers_while_the_model_computes(minilm_model: Path) -> None:
    """/ping answers within milliseconds while an inference takes seconds, and the inference succeeds."""
    service = ready_service(minilm_model)
    long = {"inputs": [{**ONE, "context": ONE["context"] * 30}] * 8}

    async def scene() -> tuple[list[float], httpx.Response]:
        transport = httpx.ASGITransport(app=create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
            invocation = asyncio.create_task(client.post("/invocations", json=long))
            while not service.active:
                await asyncio.sleep(0.001)
            waits = []
            while not invocation.done():
                began = time.monotonic()
                assert (await client.get("/ping")).status_code == 200
                waits.append(time.monotonic() - began)
                await asyncio.sleep(0.02)
            return waits, await invocation

    waits, response = asyncio.run(scene())
    assert response.status_code == 200
    assert len(response.json()) == 8
    assert len(waits) >= 10
    assert sorted(waits)[len(waits) // 2] < 0.05
