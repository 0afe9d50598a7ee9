"""Properties in which our model and a handler differ, with real workers. serve/README.md has them as a table.

The first value of a case is the name of the property's row in that table.
"""

import gzip
import json
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from berth.images.pins import pins
from berth.serve.http.app import create_app
from berth.serve.limits import MEBIBYTE
from tests.files import write_files
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
    seen["headers"] = [headers.get("Content-Type"), headers.get("Content-Encoding")]
    return json.dumps(seen | {"offline": os.environ.get("HF_HUB_OFFLINE")}), "application/json"
"""
QUESTION = json.dumps({"inputs": ONE}).encode()


@pytest.fixture(scope="module")
def handler_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose handler answers with what it was called with."""
    return write_files(tmp_path_factory.mktemp("handler") / "model", {"code/inference.py": HANDLER})


@pytest.fixture(scope="module")
def clients(handler_folder: Path, tiny_client: TestClient) -> dict[str, TestClient]:
    return {"a handler": TestClient(create_app(ready_service(handler_folder))), "our model": tiny_client}


BYTES, ENCODING, TYPE, TEXT = "bytes of a body", "Content-Encoding", "Content-Type", "text that is not UTF-8"
EMPTY, ACCEPT, STATUS, HUB = "empty body", "Accept", "statuses of an answer", "the hub of models"
DEFAULTS, LOG = "`SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT`, `HF_TASK`", "log lines"
JSON = "application/json"
PACKED = gzip.compress(QUESTION)
LARGEST = {"a handler": b"x" * 25 * MEBIBYTE, "our model": QUESTION + b" " * (2 * MEBIBYTE - len(QUESTION))}


def names_of(cases: Iterable[tuple[Any, ...]]) -> list[str]:
    """The names of the cases' rows, because the bodies are too long for a test's name."""
    return [case[0] for case in cases]


# A request to the handler, and what the handler was called with.
SEEN: list[tuple[str, bytes, dict[str, str], dict[str, Any]]] = [
    (BYTES, LARGEST["a handler"], {"content-type": "image/png"}, {"type": "bytes", "bytes": 25 * MEBIBYTE}),
    (
        ENCODING,
        PACKED,
        {"content-encoding": "gzip", "content-type": "image/png"},
        {"bytes": len(PACKED), "headers": ["image/png", "gzip"]},
    ),
    *(
        (
            TYPE,
            b"\xff\x00",
            {"content-type": header},
            {"content_type": header, "headers": [header, None], "type": "bytes", "bytes": 2},
        )
        for header in ("multipart/form-data; boundary=XyZ", "audio/L16; rate=16000", "Image/PNG")
    ),
    (TEXT, b"\xff", {"content-type": JSON}, {"bytes": 1}),
    (TEXT, b"\xff", {"content-type": "text/csv; charset=klingon"}, {"bytes": 1}),
    *(
        (TEXT, b"1", {"content-type": header}, {"type": "bytes"})
        for header in (f"{JSON}; charset=utf-16", "text/csv; charset=klingon", "application/jsonlines")
    ),
    *(
        (TEXT, '\ufeff"ä"'.encode(), {"content-type": header}, {"text": '"ä"'})
        for header in (JSON, "text/csv", f"{JSON}; charset=utf-8")
    ),
    (EMPTY, b"", {}, {"bytes": 0}),
    (ACCEPT, b"x", {"accept": "image/png"}, {"accept": "image/png"}),
    (
        ACCEPT,
        b"1",
        {"accept": f"text/html;q=0.1, {JSON}"},
        {"text": "1", "content_type": JSON, "accept": JSON},
    ),
    (STATUS, b"x", {"x-status": "418"}, {"bytes": 1}),
    (HUB, b"x", {}, {"offline": None}),
]


@pytest.mark.parametrize(("row", "content", "headers", "seen"), SEEN, ids=names_of(SEEN))
def test_handler_is_called_with_the_request(
    clients: dict[str, TestClient], row: str, content: bytes, headers: dict[str, str], seen: dict[str, Any]
) -> None:
    response = clients["a handler"].post("/invocations", content=content, headers=headers)
    assert response.status_code == int(headers.get("x-status", 200)), row
    assert seen.items() <= response.json().items()


@pytest.mark.parametrize("status", [204, 304])
def test_handlers_answer_of_a_status_without_a_body_is_empty(clients: dict[str, TestClient], status: int) -> None:
    response = clients["a handler"].post("/invocations", content=b"x", headers={"x-status": str(status)})
    assert (response.status_code, response.content) == (status, b"")
    assert not {"content-type", "content-length"} & response.headers.keys()


ANSWERED: list[tuple[str, bytes, dict[str, str]]] = [
    (BYTES, LARGEST["our model"], {}),
    (ENCODING, QUESTION, {"content-encoding": "identity"}),
    (TYPE, QUESTION, {"content-type": "Application/JSON; charset=UTF-8"}),
    (TYPE, QUESTION, {"content-type": JSON}),
    (STATUS, QUESTION, {"x-status": "204"}),
]


@pytest.mark.parametrize(("row", "content", "headers"), ANSWERED, ids=names_of(ANSWERED))
def test_our_model_answers(clients: dict[str, TestClient], row: str, content: bytes, headers: dict[str, str]) -> None:
    assert clients["our model"].post("/invocations", content=content, headers=headers).status_code == 200, row


REFUSED: list[tuple[str, str, bytes, dict[str, str], int, str, str]] = [
    (BYTES, "a handler", LARGEST["a handler"] + b"x", {}, 413, "too_large", "SAGEMAKER_MAX_PAYLOAD_IN_MB"),
    (BYTES, "our model", LARGEST["our model"] + b" ", {}, 413, "too_large", "BERTH_MAX_REQUEST_TOKENS"),
    (ENCODING, "our model", PACKED, {"content-encoding": "gzip"}, 415, "unsupported_media_type", "gzip"),
    (TYPE, "our model", QUESTION, {"content-type": "image/png"}, 415, "unsupported_media_type", "image/png"),
    (TEXT, "our model", b"\xff", {"content-type": JSON}, 400, "bad_request", "UTF-8"),
    (TEXT, "our model", QUESTION, {"content-type": f"{JSON}; charset=utf-16"}, 415, "unsupported_media_type", "utf-16"),
    (EMPTY, "our model", b"", {}, 400, "bad_request", "empty"),
    (ACCEPT, "our model", QUESTION, {"accept": "image/png"}, 406, "not_acceptable", "image/png"),
    *(
        (STATUS, "a handler", b"x", {"x-status": status}, 500, "handler_failed", f"the response's status is {status}")
        for status in ("100", "101", "600")
    ),
]


@pytest.mark.parametrize(("row", "who", "content", "headers", "status", "kind", "fact"), REFUSED, ids=names_of(REFUSED))
def test_request_is_refused(
    clients: dict[str, TestClient],
    row: str,
    who: str,
    content: bytes,
    headers: dict[str, str],
    status: int,
    kind: str,
    fact: str,
) -> None:
    found = error_of(clients[who].post("/invocations", content=content, headers=headers))
    assert found[:2] == (status, kind), row
    assert fact in found[2]


def test_handler_gets_default_accept_and_our_model_refuses_it(handler_folder: Path, tiny_model: Path) -> None:
    variables = {"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "image/png", "HF_TASK": "image-to-image"}
    client = TestClient(create_app(ready_service(handler_folder, **variables)))
    assert client.post("/invocations", content=b"x").json()["accept"] == "image/png"
    sentence = failure_of(tiny_model, **variables)
    assert all(name in sentence for name in ("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", "image/png", "HF_TASK"))


def test_log_lines_of_a_handler(handler_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
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


def test_log_lines_of_our_model(tiny_model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
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


def test_our_model_is_loaded_without_the_hub(tiny_model: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NOTES_HUB)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    ready_service(tiny_model, PYTHONPATH=path, NOTED=str(tmp_path / "noted"))
    assert (tmp_path / "noted").read_text() == "1"


def test_readme_table_has_a_row_per_property() -> None:
    page = (pins.ROOT / "serve/README.md").read_text("utf-8")
    table = page.partition("| property | our model | a handler |\n")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
    refused = {who: {case[0] for case in REFUSED if case[1] == who} for who in ("a handler", "our model")}
    assert sorted(rows) == sorted({DEFAULTS, LOG} | {case[0] for case in SEEN} | refused["a handler"])
    assert sorted(rows) == sorted({DEFAULTS, LOG, HUB} | {case[0] for case in ANSWERED} | refused["our model"])
