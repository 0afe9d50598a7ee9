"""One server, two that may answer: our own model, or a model's own code. Each property is tested for both.

serve/README.md has the same as a table. The workers are real, and so are the models.
"""

import gzip
import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from berth.serve.app import create_app
from berth.serve.limits import MEBIBYTE
from tests.unit.serve.in_process import ONE, error_of, ready_service

HANDLER = """
import json

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept, context):
    headers = dict(context.get_all_request_header(0))
    seen = {"type": type(body).__name__, "bytes": len(body), "content_type": content_type, "accept": accept}
    return json.dumps(seen | {"headers": headers}), "application/json"
"""
QUESTION = json.dumps({"inputs": ONE}).encode()


@pytest.fixture(scope="module")
def handler(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """A client of a handler that answers with what it got."""
    folder = tmp_path_factory.mktemp("handler") / "model"
    (folder / "code").mkdir(parents=True)
    (folder / "code/inference.py").write_text(HANDLER)
    return TestClient(create_app(ready_service(folder, TMPDIR=str(folder.parent))))


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
