"""Many models behind one endpoint: what is loaded, refused and given back, with real workers."""

import asyncio
import logging
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from berth.serve.app import create_app
from berth.serve.limits import RequestLimits
from berth.serve.models import ModelRegistry, needed_memory
from berth.serve.settings import model_worker
from berth.serve.workers.pool import WorkerPool
from tests.unit.serve.in_process import ONE, error_of
from tests.unit.small_models import add_graph, save_tiny_model

ECHO = "def model_fn(model_dir):\n    return lambda data: data\n"


class Endpoint:
    """A server's application without its socket, and what is loaded in it."""

    def __init__(self, root: Path, available: int = 10**12) -> None:
        self.root = root
        self.available = available
        self.pools: list[WorkerPool] = []
        self.models = ModelRegistry(
            self._start, [root / "models"], root / "scratch", RequestLimits(), lambda: self.available
        )
        self.client = TestClient(create_app(self.models))

    def _start(self, folder: Path, scratch: Path) -> WorkerPool:
        pool = WorkerPool([model_worker(1, folder, scratch)], RequestLimits())
        self.pools.append(pool)
        pool.start()
        return pool

    def load(self, name: str, url: Path | str) -> Any:
        return self.client.post("/models", json={"model_name": name, "url": str(url)})

    def names(self, **query: str) -> list[str]:
        return [each["modelName"] for each in self.client.get("/models", params=query).json()["models"]]


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("SAGEMAKER_MULTI_MODEL", "true")
    (tmp_path / "models").mkdir()
    found = Endpoint(tmp_path)
    with found.client:  # one event loop for all requests
        yield found
    found.models.close()


def add_model(endpoint: Endpoint, name: str, source: Path | None = None, **files: str) -> Path:
    folder = endpoint.root / "models" / name / "model"
    folder.mkdir(parents=True)
    if source:
        shutil.copytree(source, folder, dirs_exist_ok=True)
    for file, text in files.items():
        (folder / "code").mkdir(exist_ok=True)
        (folder / "code" / file.replace("_", ".")).write_text(text)
    return folder


@pytest.fixture(scope="session")
def other_tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other") / "model"
    save_tiny_model(folder, seed=1)
    add_graph(folder)
    return folder


def test_two_models_answer_differently_until_they_go(
    endpoint: Endpoint, tiny_model: Path, other_tiny_model: Path
) -> None:
    client = endpoint.client
    assert (client.get("/ping").status_code, client.get("/ping").json()) == (200, {"status": "ready", "models": 0})
    assert client.get("/models").json() == {"models": []}
    one, two = add_model(endpoint, "one", tiny_model), add_model(endpoint, "two", other_tiny_model)
    assert endpoint.load("one", one).json() == {"status": "one is loaded"}
    assert endpoint.load("two", two).status_code == 200
    first, second = (client.post(f"/models/{name}/invoke", json=ONE).json() for name in ("one", "two"))
    assert first["score"] != second["score"]
    assert client.get("/models/one").json() == {"modelName": "one", "modelUrl": str(one)}
    assert client.get("/models").json()["models"][1] == {"modelName": "two", "modelUrl": str(two)}

    assert error_of(endpoint.load("one", two)) == (
        409,
        "conflict",
        "the model one is loaded already: unload it first",
    )
    assert client.delete("/models/one").json() == {"status": "one is unloaded"}
    assert [worker.process.poll() for pool in endpoint.pools for worker in pool._workers] != [None, None]
    missing = (404, "not_found", "there is no model one: POST /models loads one")
    assert error_of(client.post("/models/one/invoke", json=ONE)) == missing
    assert error_of(client.get("/models/one")) == missing
    listed = "there is no model one: GET /models lists those that are loaded"
    assert error_of(client.delete("/models/one")) == (404, "not_found", listed)
    assert client.post("/models/two/invoke", json=ONE).json() == second
    assert endpoint.load("one", two).status_code == 200  # another one under the old name
    assert client.post("/models/one/invoke", json=ONE).json()["answer"] == second["answer"]


def test_a_models_own_code(endpoint: Endpoint, caplog: pytest.LogCaptureFixture) -> None:
    folder = add_model(endpoint, "echo", inference_py=ECHO)
    with caplog.at_level(logging.INFO, "berth.serve.service"):
        assert endpoint.load("echo", folder).status_code == 200
    of_service = [record.getMessage() for record in caplog.records if record.name == "berth.serve.service"]
    assert of_service[0] == f"echo: handler: {folder}/code/inference.py (model_fn)"
    assert of_service[1].startswith("echo: ready: loaded in ")
    assert endpoint.client.post("/models/echo/invoke", json=[1]).json() == [1]


def test_its_requirements_are_refused(endpoint: Endpoint) -> None:
    folder = add_model(endpoint, "wants", inference_py=ECHO, requirements_txt="tabulate")
    assert error_of(endpoint.load("wants", folder)) == (
        500,
        "broken_model",
        f"{folder}/code/requirements.txt is not installed on a multi-model endpoint, where models share the container: "
        "build an image with these packages from this one, and leave the file out",
    )
    assert endpoint.names() == []


def test_a_model_that_can_not_be_served_leaves_nothing(endpoint: Endpoint) -> None:
    folder = add_model(endpoint, "empty")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    status, kind, sentence = error_of(endpoint.load("empty", folder))
    assert (status, kind) == (500, "broken_model")
    assert sentence.startswith(f"{folder} has no weights")
    assert endpoint.names() == []
    assert not (endpoint.root / "scratch/empty").exists()
    add_model(endpoint, "echo", inference_py=ECHO)
    assert endpoint.load("empty", endpoint.root / "models/echo/model").status_code == 200  # the name is free


def test_what_does_not_fit_is_refused_and_nothing_else_unloaded(endpoint: Endpoint, tiny_model: Path) -> None:
    folder = add_model(endpoint, "one", tiny_model)
    assert endpoint.load("one", folder).status_code == 200
    endpoint.available = 50_000_000
    status, kind, sentence = error_of(endpoint.load("two", folder))
    assert (status, kind) == (507, "no_memory")
    assert sentence == (
        "the model two needs about 160 MB of memory, and 50 MB are free: unload another model, or use an instance with "
        "more"
    )
    assert endpoint.names() == ["one"]
    assert endpoint.client.post("/models/one/invoke", json=ONE).status_code == 200


def test_a_load_that_the_kernel_ends_is_no_memory(endpoint: Endpoint) -> None:
    folder = add_model(
        endpoint, "big", inference_py="import os, signal\n\ndef model_fn(d):\n    os.kill(os.getpid(), 9)\n"
    )
    status, kind, sentence = error_of(endpoint.load("big", folder))
    assert (status, kind) == (507, "no_memory")
    assert "SIGKILL" in sentence


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", 'the body is empty: send {"model_name": "…", "url": "/opt/ml/models/…"}'),
        (b"[]", 'the body must be {"model_name": "…", "url": "/opt/ml/models/…"}'),
        (b'{"model_name": 3}', "`model_name` is missing: it must be a string; `url` is missing: it must be a string"),
        (
            b'{"model_name": "a/b", "url": "%(root)s/x"}',
            "`model_name` is `a/b`: letters, digits, `_`, `-` and `.` make",
        ),
        (b'{"model_name": "..", "url": "%(root)s/x"}', "`model_name` is `..`: letters, digits, `_`, `-` and `.` make"),
        (b'{"model_name": "a", "url": "%(root)s/x"}', "`url` is `%(root)s/x`: there is no such folder"),
        (b'{"model_name": "a", "url": "%(root)s"}', "`url` is `%(root)s`, which has no config.json, nor has a"),
        (b'{"model_name": "a", "url": "/etc"}', "`url` is `/etc`: it must be a folder below %(root)s"),
        (
            b'{"model_name": "a", "url": "%(root)s/../scratch"}',
            "`url` is `%(root)s/../scratch`: it must be a folder below",
        ),
        (b'{"model_name": "a", "url": "/a\\u0000"}', "`url` is `/a\x00`: it must be a folder below %(root)s"),
    ],
)
def test_requests_for_a_model_that_can_not_be(endpoint: Endpoint, body: bytes, sentence: str) -> None:
    root = str(endpoint.root / "models")
    status, kind, said = error_of(endpoint.client.post("/models", content=body.replace(b"%(root)s", root.encode())))
    assert (status, kind) == (400, "bad_request")
    assert said.startswith(sentence.replace("%(root)s", root)[:80])


def test_a_link_out_of_the_folder_is_no_model(endpoint: Endpoint, tiny_model: Path) -> None:
    (endpoint.root / "models/link").symlink_to(tiny_model)
    assert error_of(endpoint.load("link", endpoint.root / "models/link"))[:2] == (400, "bad_request")


def test_a_second_load_while_the_first_is_on_its_way(endpoint: Endpoint) -> None:
    folder = add_model(
        endpoint, "slow", inference_py="import time\n\ndef model_fn(d):\n    time.sleep(2)\n    return len\n"
    )
    found: list[int] = []
    first = threading.Thread(target=lambda: found.append(endpoint.load("slow", folder).status_code))
    first.start()
    deadline = time.monotonic() + 30
    while not endpoint.pools:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert error_of(endpoint.load("slow", folder)) == (
        409,
        "conflict",
        "the model slow is being loaded already: unload it first",
    )
    assert error_of(endpoint.client.delete("/models/slow"))[:2] == (409, "conflict")
    assert error_of(endpoint.client.post("/models/slow/invoke", json=[1]))[:2] == (503, "not_ready")
    assert endpoint.names() == []
    first.join()
    assert found == [200]
    assert endpoint.client.post("/models/slow/invoke", json=[1, 2]).json() == 2


def test_the_list_has_pages(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"model-{number}" for number in range(5)]
    folder = add_model(endpoint, "echo", inference_py=ECHO)

    async def load_all() -> None:
        await asyncio.gather(*(endpoint.models.load(name, str(folder)) for name in names))

    endpoint.client.portal.call(load_all)
    first = endpoint.client.get("/models", params={"limit": "2"}).json()
    assert [each["modelName"] for each in first["models"]] == names[:2]
    second = endpoint.client.get("/models", params={"limit": "2", "next_page_token": first["nextPageToken"]}).json()
    assert [each["modelName"] for each in second["models"]] == names[2:4]
    last = endpoint.client.get("/models", params={"limit": "2", "next_page_token": second["nextPageToken"]}).json()
    assert last == {"models": [{"modelName": names[4], "modelUrl": str(folder)}]}
    assert endpoint.names() == names
    for wrong in ("0", "x", "1001", "-1"):
        assert error_of(endpoint.client.get("/models", params={"limit": wrong}))[:2] == (400, "bad_request")
    for wrong in ("a b", "../x", "\N{SNOWMAN}", "x" * 1025):
        assert error_of(endpoint.client.get("/models", params={"next_page_token": wrong})) == (
            400,
            "bad_request",
            "`next_page_token` is none: send the `nextPageToken` of the page before, or leave it out",
        )


def test_paths_of_one_model_are_none_here(endpoint: Endpoint) -> None:
    status, kind, sentence = error_of(endpoint.client.post("/invocations", json=ONE))
    assert (status, kind) == (404, "not_found")
    assert sentence == (
        "no such path: this server answers GET /ping, GET /execution-parameters, GET /metrics, GET /models, "
        "POST /models, DELETE /models/{name}, GET /models/{name}, POST /models/{name}/invoke and GET "
        "/openapi.json; /invocations is there without SAGEMAKER_MULTI_MODEL=true, which makes this a server of many "
        "models"
    )
    refused = endpoint.client.put("/models/x")
    assert refused.status_code == 405
    assert set(refused.headers["allow"].split(", ")) == {"DELETE", "GET", "HEAD"}


def test_a_stop_refuses_loads_and_ends_every_worker(endpoint: Endpoint) -> None:
    folder = add_model(endpoint, "echo", inference_py=ECHO)
    assert endpoint.load("echo", folder).status_code == 200
    endpoint.models.stop()
    assert endpoint.client.get("/ping").status_code == 503
    assert error_of(endpoint.load("other", folder))[:2] == (503, "not_ready")
    endpoint.models.close()
    assert [worker.process.poll() for pool in endpoint.pools for worker in pool._workers] == [-9]


def test_models_that_are_loaded_keep_room_to_grow(endpoint: Endpoint, tiny_model: Path) -> None:
    endpoint.models._capacity = 400_000_000  # two of 160 MB, whatever they take at first
    folder = add_model(endpoint, "one", tiny_model)
    assert [endpoint.load(name, folder).status_code for name in ("one", "two", "three")] == [200, 200, 507]


def test_memory_that_a_model_will_need(tmp_path: Path) -> None:
    (tmp_path / "openvino").mkdir()
    (tmp_path / "openvino/fp32.bin").write_bytes(b"x" * 1000)
    (tmp_path / "model.safetensors").write_bytes(b"x" * 1000)
    assert needed_memory(tmp_path) == 160_003_500
    (tmp_path / "code").mkdir()
    (tmp_path / "code/inference.py").write_bytes(b"pass")
    assert needed_memory(tmp_path) == 300_002_004
