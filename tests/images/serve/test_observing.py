"""The page, the metrics and the JSON log of the image."""

import json
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.images.serve.conftest import Serve
from tests.images.serve.served import Served

QUESTION = {"question": "What is used?", "context": "This model is used with sagemaker for inference."}


@pytest.fixture(scope="module")
def served(serve_model: Serve, model_with_graph: Path) -> Served:
    return serve_model(model_with_graph, {"BERTH_LOG_FORMAT": "json"})


def test_page_is_served(served: Served) -> None:
    status, body, headers = served.exchange("GET", "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert b"<h1>Ask the model</h1>" in body


def test_request_is_counted_and_logged(served: Served) -> None:
    _, body, _ = served.exchange(
        "POST", "/invocations", json.dumps(QUESTION).encode(), X_Amzn_SageMaker_Inference_Id="a1"
    )
    assert json.loads(body)["answer"] in QUESTION["context"]
    status, text, _ = served.exchange("GET", "/metrics")
    found = {sample.name for family in text_string_to_metric_families(text.decode()) for sample in family.samples}
    assert status == 200
    assert {"berth_requests_total", "berth_stage_seconds_bucket", "berth_queue_tokens", "berth_batches_total"} <= found
    lines = [json.loads(line) for line in served.log().splitlines()]
    (line,) = [line for line in lines if line.get("inference_id") == "a1"]
    assert (line["method"], line["path"], line["status"]) == ("POST", "/invocations", 200)
    assert set(line["stages_ms"]) == {"receive", "read", "queue", "model", "answer"}
