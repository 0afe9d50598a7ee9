"""A multi-model application in process, with real workers."""

import asyncio
import logging
from pathlib import Path

import pytest

from tests.unit.serve.in_process import ONE, error_of
from tests.unit.serve.models.endpoint import ECHO, Endpoint, add_model

pytestmark = pytest.mark.slow


def test_two_models_are_loaded_invoked_and_unloaded(
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
        "the model one is loaded: unload it first",
    )
    assert client.delete("/models/one").json() == {"status": "one is unloaded"}
    assert [worker.process.poll() for pool in endpoint.pools for worker in pool._workers] != [None, None]
    missing = (404, "not_found", "there is no model one: POST /models loads it")
    assert error_of(client.post("/models/one/invoke", json=ONE)) == missing
    listed = "there is no model one: GET /models lists the models that are loaded"
    assert error_of(client.get("/models/one")) == (404, "not_found", listed)
    assert error_of(client.delete("/models/one")) == (404, "not_found", listed)
    assert client.post("/models/two/invoke", json=ONE).json() == second
    assert endpoint.load("one", two).status_code == 200  # another model with the old name
    assert client.post("/models/one/invoke", json=ONE).json()["answer"] == second["answer"]


def test_handler_is_loaded_and_logged_with_its_models_name(
    endpoint: Endpoint, caplog: pytest.LogCaptureFixture
) -> None:
    folder = add_model(endpoint, "echo", inference_py=ECHO)
    with caplog.at_level(logging.INFO, "berth.serve.models.service"):
        assert endpoint.load("echo", folder).status_code == 200
    lines = [record.getMessage() for record in caplog.records if record.name == "berth.serve.models.service"]
    assert lines[0] == f"echo: handler: {folder}/code/inference.py (model_fn)"
    assert lines[1].startswith("echo: ready: loaded in ")
    assert endpoint.client.post("/models/echo/invoke", json=[1]).json() == [1]


def test_model_over_the_free_memory_gets_507_and_others_stay(endpoint: Endpoint, tiny_model: Path) -> None:
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


@pytest.mark.parametrize(
    ("files", "status", "kind", "fact"),
    [
        ({"inference_py": "def model_fn(d):\n    raise OSError('no weights')\n"}, 500, "broken_model", "no weights"),
        ({"inference_py": "import os\n\ndef model_fn(d):\n    os.kill(os.getpid(), 9)\n"}, 507, "no_memory", "SIGKILL"),
        (
            {"inference_py": ECHO, "requirements_txt": "--no-index\nno-such-package\n"},
            500,
            "broken_model",
            "no-such-package",
        ),
    ],
    ids=["error", "killed", "package"],
)
def test_failed_load_leaves_no_files_and_frees_the_name(
    endpoint: Endpoint, files: dict[str, str], status: int, kind: str, fact: str
) -> None:
    found = error_of(endpoint.load("a", add_model(endpoint, "broken", **files)))
    assert found[:2] == (status, kind)
    assert fact in found[2]
    assert endpoint.nothing_is_left()


def test_list_of_models_has_pages(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
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
    for wrong in ("0", "x", "1001", "-1", "9" * 5000):
        assert error_of(endpoint.client.get("/models", params={"limit": wrong}))[:2] == (400, "bad_request")


def test_invocations_path_is_unknown_on_a_multi_model_endpoint(endpoint: Endpoint) -> None:
    status, kind, sentence = error_of(endpoint.client.post("/invocations", json=ONE))
    assert (status, kind) == (404, "not_found")
    assert sentence == (
        "no such path: with SAGEMAKER_MULTI_MODEL true this server answers GET /ping, GET /execution-parameters, "
        "GET /metrics, GET /models, POST /models, DELETE /models/{name}, GET /models/{name} and POST "
        "/models/{name}/invoke"
    )
    refused = endpoint.client.put("/models/x")
    assert refused.status_code == 405
    assert set(refused.headers["allow"].split(", ")) == {"DELETE", "GET", "HEAD"}


def test_stop_refuses_loads_and_close_ends_all_workers(endpoint: Endpoint) -> None:
    folder = add_model(endpoint, "echo", inference_py=ECHO)
    assert endpoint.load("echo", folder).status_code == 200
    endpoint.models.stop()
    assert endpoint.client.get("/ping").status_code == 503
    assert error_of(endpoint.load("other", folder))[:2] == (503, "not_ready")
    endpoint.models.close()
    assert [worker.process.poll() for pool in endpoint.pools for worker in pool._workers] == [-9]


def test_loaded_models_reserve_the_memory_that_they_will_need(endpoint: Endpoint, tiny_model: Path) -> None:
    endpoint.models._capacity = 400_000_000  # room for two models that reserve 160 MB each
    folder = add_model(endpoint, "one", tiny_model)
    assert [endpoint.load(name, folder).status_code for name in ("one", "two", "three")] == [200, 200, 507]
