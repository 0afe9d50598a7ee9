"""Prometheus metrics, the page's headers, and log lines."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from berth.serve.configuration.settings import ServerSettings
from berth.serve.http.app import create_app
from berth.serve.observing.log import JsonFormatter
from tests.unit.serve.in_process import ONE, ready_service

STAGES = {"receive", "read", "queue", "model", "answer"}


def test_metrics_count_requests_stages_and_batches(tiny_client: TestClient) -> None:
    for _ in range(3):
        assert tiny_client.post("/invocations", json=ONE).status_code == 200
    assert tiny_client.post("/invocations", json={}).status_code == 400
    assert tiny_client.get("/nowhere").status_code == 404
    assert tiny_client.get("/ping").status_code == 200
    response = tiny_client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    values = {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }
    assert values["berth_requests_total", ("/invocations", "200")] == 3
    assert values["berth_requests_total", ("/invocations", "400")] == 1
    assert values["berth_requests_total", ("other", "404")] == 1
    assert not [name for name, labels in values if "/ping" in labels]
    for stage in STAGES:
        assert values["berth_stage_seconds_count", (stage,)] == 3
        seconds = values["berth_stage_seconds_sum", (stage,)]
        assert seconds > 0 or stage == "queue"  # the queue is empty here
        assert seconds < 60
    assert values["berth_batches_total", ()] >= 3
    assert values["berth_batch_windows_total", ()] >= values["berth_batches_total", ()]
    assert values["berth_batch_padded_tokens_total", ()] >= values["berth_batch_tokens_total", ()] > 0
    for gauge in ("berth_queue_tokens", "berth_body_bytes", "berth_active_requests"):
        assert values[gauge, ()] == 0


def test_page_allows_only_its_own_script_and_can_be_disabled(tiny_client: TestClient, tiny_model: Path) -> None:
    response = tiny_client.get("/")
    assert response.headers["content-type"].startswith("text/html")
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in response.text  # no address of another server
    off = TestClient(create_app(ready_service(tiny_model), ServerSettings(page=False)))
    assert off.get("/").status_code == 404


def test_json_log_line_has_ids_and_stages(tiny_client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    headers = {"X-Amzn-SageMaker-Inference-Id": "abc", "X-Amzn-SageMaker-Target-Model": "m.tar.gz"}
    with caplog.at_level(logging.INFO):
        tiny_client.post("/invocations", json=ONE, headers=headers)
    (record,) = [each for each in caplog.records if each.name.endswith("access_log")]
    line: dict[str, Any] = json.loads(JsonFormatter().format(record))
    assert record.getMessage().startswith("POST /invocations 200 in ")
    assert (line["method"], line["path"], line["status"], line["level"]) == ("POST", "/invocations", 200, "info")
    assert (line["inference_id"], line["target_model"]) == ("abc", "m.tar.gz")
    assert set(line["stages_ms"]) == STAGES
    assert sum(line["stages_ms"].values()) <= line["ms"] + 5


def test_log_line_of_a_refused_request_has_its_type_and_no_content(
    tiny_client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        tiny_client.post("/invocations", json={"secret": 1})
        tiny_client.get("/no%0Aline")
        tiny_client.get("/invocations")
        tiny_client.get("/ping")  # without a line
    records = [each for each in caplog.records if each.name.endswith("access_log")]
    starts = [each.getMessage().rsplit(" in ")[0] for each in records]
    assert starts == [
        "POST /invocations 400 bad_request",
        "GET /no%0Aline 404 not_found",
        "GET /invocations 405 method_not_allowed",
    ]
    lines = [JsonFormatter().format(each) for each in records]
    assert [json.loads(line)["error_type"] for line in lines] == ["bad_request", "not_found", "method_not_allowed"]
    assert "secret" not in "".join(lines)


def test_json_log_line_has_the_traceback_as_a_field() -> None:
    try:
        raise ValueError("a\nb")
    except ValueError:
        record = logging.LogRecord("berth.x", logging.ERROR, "f", 1, "it %s", ("failed",), __import__("sys").exc_info())
    text = JsonFormatter().format(record)
    assert "\n" not in text
    line = json.loads(text)
    assert (line["message"], line["logger"]) == ("it failed", "berth.x")
    assert line["traceback"].endswith("ValueError: a\nb")
