"""One server, two that may answer: our own model, or a model's own code. Each property is tested for both.

serve/README.md has the same as a table. The workers are real, and so are the models.
"""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from berth.serve.app import create_app
from berth.serve.limits import MEBIBYTE
from berth.serve.settings import limits_of, read_settings
from tests.unit.serve.in_process import ONE, error_of, failure_of, ready_service

HANDLER = """
import json

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept, context):
    headers = dict(context.get_all_request_header(0))
    seen = {"type": type(body).__name__, "bytes": len(body), "content_type": content_type, "accept": accept}
    return json.dumps(seen | {"headers": headers}), "application/json"
"""
LOADS_OUR_MODEL = """
from pathlib import Path
from berth.runtime.engines import choose

def model_fn(model_dir):
    return choose.load(Path(model_dir), choose.EngineSettings(1), print)
"""
QUESTION = json.dumps({"inputs": ONE}).encode()


@pytest.fixture(scope="module")
def handler_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose handler answers with what it got."""
    folder = tmp_path_factory.mktemp("handler") / "model"
    (folder / "code").mkdir(parents=True)
    (folder / "code/inference.py").write_text(HANDLER)
    return folder


@pytest.fixture(scope="module")
def handler(handler_folder: Path) -> TestClient:
    return TestClient(create_app(ready_service(handler_folder)))


def seen_by(client: TestClient, content: Any, **headers: str) -> Any:
    """What the handler got."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = client.post("/invocations", content=content, headers=named)
    assert response.status_code == 200, response.text
    return response.json()


class TestLimits:
    """Of a body's bytes."""

    def test_of_a_handler(self, handler: TestClient) -> None:
        most = 25 * MEBIBYTE
        seen = seen_by(handler, b"x" * most, content_type="image/png")
        assert (seen["type"], seen["bytes"]) == ("bytes", most)
        status, kind, sentence = error_of(handler.post("/invocations", content=b"x" * (most + 1)))
        assert (status, kind) == (413, "too_large")
        assert "SAGEMAKER_MAX_PAYLOAD_IN_MB" in sentence

    def test_of_our_model(self, tiny_client: TestClient) -> None:
        padding = b" " * (2 * MEBIBYTE - len(QUESTION))
        assert tiny_client.post("/invocations", content=QUESTION + padding).status_code == 200
        status, kind, sentence = error_of(tiny_client.post("/invocations", content=QUESTION + padding + b" "))
        assert (status, kind) == (413, "too_large")
        assert "BERTH_MAX_REQUEST_TOKENS" in sentence


class TestContentEncoding:
    """Of a compressed body."""

    def test_of_a_handler(self, handler: TestClient) -> None:
        packed = gzip.compress(b"x" * 5_000_000)
        seen = seen_by(handler, packed, content_encoding="gzip", content_type="text/plain")
        assert seen["bytes"] == 5_000_000
        assert "Content-Encoding" not in seen["headers"]
        assert seen["headers"]["Content-Length"] == "5000000"
        bomb = gzip.compress(b"\0" * (60 * MEBIBYTE))
        refused = handler.post("/invocations", content=bomb, headers={"content-encoding": "gzip"})
        assert error_of(refused)[:2] == (413, "too_large")

    def test_of_our_model(self, tiny_client: TestClient) -> None:
        plain = tiny_client.post("/invocations", content=QUESTION)
        headers = {"content-encoding": "gzip"}
        packed = tiny_client.post("/invocations", content=gzip.compress(QUESTION), headers=headers)
        assert packed.json() == plain.json()
        refused = tiny_client.post("/invocations", content=QUESTION, headers=headers)
        assert error_of(refused)[:2] == (400, "bad_request")
        bomb = gzip.compress(b" " * (60 * MEBIBYTE))
        assert error_of(tiny_client.post("/invocations", content=bomb, headers=headers))[:2] == (413, "too_large")

    @pytest.mark.parametrize("client_of", ["handler", "tiny_client"])
    def test_another_one_of_both(self, client_of: str, request: pytest.FixtureRequest) -> None:
        client: TestClient = request.getfixturevalue(client_of)
        refused = client.post("/invocations", content=QUESTION, headers={"content-encoding": "br"})
        assert error_of(refused)[:2] == (415, "unsupported_media_type")


class TestDefaultAccept:
    """Of SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT: a type that is not among our model's."""

    def test_of_a_handler(self, handler_folder: Path) -> None:
        service = ready_service(
            handler_folder, SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT="image/png", HF_TASK="image-to-image"
        )
        assert seen_by(TestClient(create_app(service)), b"x")["accept"] == "image/png"

    def test_of_our_model(self, tiny_model: Path) -> None:
        sentence = failure_of(tiny_model, SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT="image/png", HF_TASK="image-to-image")
        assert all(name in sentence for name in ("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", "image/png", "HF_TASK"))


VARIABLES = {"BERTH_MAX_REQUEST_TOKENS": "5000", "SAGEMAKER_MAX_PAYLOAD_IN_MB": "7"}


class TestVariablesWithoutEffect:
    """They are named when it is known who answers."""

    @pytest.fixture(autouse=True)
    def variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in VARIABLES.items():
            monkeypatch.setenv(name, value)

    def named(self, folder: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
        caplog.clear()
        ready_service(folder, limits_of(read_settings(VARIABLES)))
        return [record.getMessage() for record in caplog.records if "without effect" in record.getMessage()]

    def test_of_a_handler(self, handler_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        (line,) = self.named(handler_folder, caplog)
        assert line.endswith(": BERTH_MAX_REQUEST_TOKENS")

    @pytest.mark.parametrize("loads", ["", LOADS_OUR_MODEL], ids=["we load it", "it loads it"])
    def test_of_a_handler_with_our_model(
        self, loads: str, tiny_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        folder = shutil.copytree(tiny_model, tmp_path / "model")
        (folder / "code").mkdir()
        (folder / "code/inference.py").write_text(f"{loads}\ndef predict_fn(data, model):\n    return 1\n")
        assert self.named(folder, caplog) == []

    def test_of_our_model(self, tiny_model: Path, caplog: pytest.LogCaptureFixture) -> None:
        (line,) = self.named(tiny_model, caplog)
        assert "SAGEMAKER_MAX_PAYLOAD_IN_MB" in line
        assert "raise BERTH_MAX_REQUEST_TOKENS" in line
