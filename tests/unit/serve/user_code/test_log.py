"""Log lines of a handler in a real worker, with SAGEMAKER_CONTAINER_LOG_LEVEL."""

import json
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

HANDLER = """
import logging

logging.getLogger("botocore.client").info("connection pool is full")
logging.getLogger("filelock").error("no lock")

def model_fn(model_dir):
    logging.getLogger("reader").info("model loaded")
    logging.info("to the root logger")
    logging.getLogger("reader").debug("details")
    logging.getLogger("reader.parts").error("a part is missing")

def predict_fn(data, model):
    return 1
"""
Serve = Callable[..., TestClient]


def lines_of(serve: Serve, capfd: pytest.CaptureFixture[str], **environment: str) -> list[str]:
    serve(HANDLER, **environment)
    lines = capfd.readouterr().err.splitlines()
    return [line for line in lines if any(name in line for name in ("reader", "root: ", "botocore", "filelock"))]


def test_handlers_info_lines_are_shown_and_libraries_are_not(serve: Serve, capfd: pytest.CaptureFixture[str]) -> None:
    assert lines_of(serve, capfd) == [
        "berth: error: filelock: no lock",
        "berth: reader: model loaded",
        "berth: root: to the root logger",
        "berth: error: reader.parts: a part is missing",
    ]


def test_debug_lines_in_json(serve: Serve, capfd: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(serve, capfd, SAGEMAKER_CONTAINER_LOG_LEVEL="10", BERTH_LOG_FORMAT="json")
    debug = next(json.loads(line) for line in lines if "details" in line)
    assert (debug["level"], debug["logger"]) == ("debug", "reader")
    assert not any("connection pool" in line for line in lines)
