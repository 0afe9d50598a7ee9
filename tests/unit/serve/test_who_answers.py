"""Properties in which our model and a handler differ. Each class tests one property for both, with real workers.

serve/README.md has the same properties as a table; the docstring of a class is the name of its row.
"""

import gzip
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from berth.images.pins import pins
from berth.serve.http.app import create_app
from berth.serve.limits import MEBIBYTE
from tests.unit.serve.in_process import ONE, error_of, failure_of, ready_service

HANDLER = """
import json, logging, os

logging.getLogger("botocore").info("a library's")
logging.getLogger("filelock").error("no lock")

def model_fn(model_dir):
    logging.getLogger("inference").info("loaded")
    logging.info("to the root logger")
    logging.getLogger("inference").debug("details")
    logging.getLogger("inference.parts").error("a part is missing")

def transform_fn(model, body, content_type, accept, context):
    headers = dict(context.get_all_request_header(0))
    context.set_response_status(int(headers.get("X-Status", 200)))
    seen = {"type": type(body).__name__, "bytes": len(body), "content_type": content_type, "accept": accept}
    seen["text"] = body if isinstance(body, str) else None
    return json.dumps(seen | {"headers": headers, "offline": os.environ.get("HF_HUB_OFFLINE")}), "application/json"
"""
QUESTION = json.dumps({"inputs": ONE}).encode()


@pytest.fixture(scope="module")
def handler_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose handler answers with what it was called with."""
    folder = tmp_path_factory.mktemp("handler") / "model"
    (folder / "code").mkdir(parents=True)
    (folder / "code/inference.py").write_text(HANDLER)
    return folder


@pytest.fixture(scope="module")
def handler(handler_folder: Path) -> TestClient:
    return TestClient(create_app(ready_service(handler_folder)))


def seen_by(client: TestClient, content: Any, **headers: str) -> Any:
    """What the handler was called with."""
    sent_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    response = client.post("/invocations", content=content, headers=sent_headers)
    assert response.status_code == 200, response.text
    return response.json()


class TestLimits:
    """bytes of a body"""

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
    """Content-Encoding"""

    def test_of_a_handler(self, handler: TestClient) -> None:
        packed = gzip.compress(b"x" * 5_000)
        seen = seen_by(handler, packed, content_encoding="gzip", content_type="application/octet-stream")
        assert (seen["bytes"], seen["headers"]["Content-Encoding"]) == (len(packed), "gzip")

    def test_of_our_model(self, tiny_client: TestClient) -> None:
        headers = {"content-encoding": "gzip"}
        refused = tiny_client.post("/invocations", content=gzip.compress(QUESTION), headers=headers)
        assert error_of(refused)[:2] == (415, "unsupported_media_type")
        assert (
            tiny_client.post("/invocations", content=QUESTION, headers={"content-encoding": "identity"}).status_code
            == 200
        )


class TestDefaultAccept:
    """`SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT`, `HF_TASK`"""

    def test_of_a_handler(self, handler_folder: Path) -> None:
        service = ready_service(
            handler_folder, SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT="image/png", HF_TASK="image-to-image"
        )
        assert seen_by(TestClient(create_app(service)), b"x")["accept"] == "image/png"

    def test_of_our_model(self, tiny_model: Path) -> None:
        sentence = failure_of(tiny_model, SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT="image/png", HF_TASK="image-to-image")
        assert all(name in sentence for name in ("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", "image/png", "HF_TASK"))


class TestContentType:
    """Content-Type"""

    @pytest.mark.parametrize("header", ["multipart/form-data; boundary=XyZ", "audio/L16; rate=16000", "Image/PNG"])
    def test_of_a_handler(self, header: str, handler: TestClient) -> None:
        seen = seen_by(handler, b"\xff\x00", content_type=header)
        assert (seen["content_type"], seen["headers"]["Content-Type"]) == (header, header)
        assert (seen["type"], seen["bytes"]) == ("bytes", 2)

    def test_of_our_model(self, tiny_client: TestClient) -> None:
        refused = tiny_client.post("/invocations", content=QUESTION, headers={"content-type": "image/png"})
        assert error_of(refused)[:2] == (415, "unsupported_media_type")
        for header in ("Application/JSON; charset=UTF-8", "application/json"):
            taken = tiny_client.post("/invocations", content=QUESTION, headers={"content-type": header})
            assert taken.status_code == 200


class TestCharset:
    """text that is not UTF-8"""

    def test_of_a_handler(self, handler: TestClient) -> None:
        assert seen_by(handler, b"\xff", content_type="application/json")["bytes"] == 1
        assert seen_by(handler, b"\xff", content_type="text/csv; charset=klingon")["bytes"] == 1
        for header in ("application/json; charset=utf-16", "text/csv; charset=klingon", "application/jsonlines"):
            assert seen_by(handler, b"1", content_type=header)["type"] == "bytes"
        for header in ("application/json", "text/csv", "application/json; charset=utf-8"):
            assert seen_by(handler, '\ufeff"ä"'.encode(), content_type=header)["text"] == '"ä"'

    def test_of_our_model(self, tiny_client: TestClient) -> None:
        headers = {"content-type": "application/json"}
        assert error_of(tiny_client.post("/invocations", content=b"\xff", headers=headers))[:2] == (400, "bad_request")
        headers = {"content-type": "application/json; charset=utf-16"}
        refused = tiny_client.post("/invocations", content=QUESTION, headers=headers)
        assert error_of(refused)[:2] == (415, "unsupported_media_type")


class TestEmptyBody:
    """empty body"""

    def test_of_a_handler(self, handler: TestClient) -> None:
        assert seen_by(handler, b"")["bytes"] == 0

    def test_of_our_model(self, tiny_client: TestClient) -> None:
        assert error_of(tiny_client.post("/invocations", content=b""))[:2] == (400, "bad_request")


class TestAccept:
    """Accept"""

    def test_of_a_handler(self, handler: TestClient) -> None:
        assert seen_by(handler, b"x", accept="image/png")["accept"] == "image/png"
        several = seen_by(handler, b"1", accept="text/html;q=0.1, application/json")
        assert (several["text"], several["content_type"], several["accept"]) == ("1", *["application/json"] * 2)

    def test_of_our_model(self, tiny_client: TestClient) -> None:
        refused = tiny_client.post("/invocations", content=QUESTION, headers={"accept": "image/png"})
        assert error_of(refused)[:2] == (406, "not_acceptable")


class TestStatus:
    """statuses of an answer"""

    def test_of_a_handler(self, handler: TestClient) -> None:
        for status in (204, 304):
            response = handler.post("/invocations", content=b"x", headers={"x-status": str(status)})
            assert (response.status_code, response.content) == (status, b"")
            assert not {"content-type", "content-length"} & response.headers.keys()
        assert handler.post("/invocations", content=b"x", headers={"x-status": "418"}).json()["bytes"] == 1
        for status in (100, 101, 600):
            code, kind, sentence = error_of(
                handler.post("/invocations", content=b"x", headers={"x-status": str(status)})
            )
            assert (code, kind) == (500, "handler_failed")
            assert f"the response's status is {status}" in sentence

    def test_of_our_model(self, tiny_client: TestClient) -> None:
        assert tiny_client.post("/invocations", content=QUESTION, headers={"x-status": "204"}).status_code == 200


class TestLog:
    """log lines"""

    def test_of_a_handler(self, handler_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        ready_service(handler_folder)
        assert capfd.readouterr().err.splitlines() == [
            "berth: loading the model's own code",
            "berth: error: filelock: no lock",
            "berth: inference: loaded",
            "berth: root: to the root logger",
            "berth: error: inference.parts: a part is missing",
        ]
        ready_service(handler_folder, SAGEMAKER_CONTAINER_LOG_LEVEL="error")
        assert "loaded" not in capfd.readouterr().err
        ready_service(handler_folder, SAGEMAKER_CONTAINER_LOG_LEVEL="10", BERTH_LOG_FORMAT="json")
        lines = capfd.readouterr().err.splitlines()
        debug = next(json.loads(line) for line in lines if "details" in line)
        assert (debug["level"], debug["logger"]) == ("debug", "inference")
        assert not any("a library's" in line for line in lines)

    def test_of_our_model(self, tiny_model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        """The worker logs that a damaged graph is not used."""
        folder = shutil.copytree(tiny_model, tmp_path / "model")
        (folder / "openvino/fp32.bin").unlink()
        int8 = {"BERTH_PRECISION": "int8"}  # no graph is made for int8, which would take seconds
        failure_of(folder, **int8)
        assert "it is not used" in capfd.readouterr().err
        failure_of(folder, **int8, SAGEMAKER_CONTAINER_LOG_LEVEL="error")
        assert "it is not used" not in capfd.readouterr().err


# The test writes this as sitecustomize.py, which Python imports at start. It notes the value of HF_HUB_OFFLINE when
# the engine of our model is imported.
NOTES_HUB = """
import os, sys

def note(event, arguments):
    if event == "import" and arguments[0] == "openvino":
        with open(os.environ["NOTED"], "w") as file:
            file.write(os.environ.get("HF_HUB_OFFLINE", "online"))

sys.addaudithook(note)
"""


class TestHub:
    """the hub of models"""

    def test_of_a_handler(self, handler: TestClient) -> None:
        assert seen_by(handler, b"x")["offline"] is None

    def test_of_our_model(self, tiny_model: Path, tmp_path: Path) -> None:
        (tmp_path / "sitecustomize.py").write_text(NOTES_HUB)
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        ready_service(tiny_model, PYTHONPATH=path, NOTED=str(tmp_path / "noted"))
        assert (tmp_path / "noted").read_text() == "1"


def test_readme_table_has_a_row_per_class() -> None:
    page = (pins.ROOT / "serve/README.md").read_text("utf-8")
    table = page.partition("| property | our model | a handler |\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
    tested = [each for name, each in globals().items() if name.startswith("Test") and name != "TestClient"]
    assert sorted(rows) == sorted(str(each.__doc__) for each in tested)
    for each in tested:
        assert {"test_of_a_handler", "test_of_our_model"} <= vars(each).keys()
