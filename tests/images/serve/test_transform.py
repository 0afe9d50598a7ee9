"""A batch transform's container: /execution-parameters, and bodies of many records."""

import csv
import io
import json
from pathlib import Path

import pytest

from tests.images.serve.conftest import Serve
from tests.images.serve.served import Served

QUESTION = {"question": "What is used?", "context": 'This "model", is used\nwith sagemaker for inference.'}


@pytest.fixture(scope="module")
def served(serve_model: Serve, model_with_graph: Path) -> Served:
    environment = {
        "SAGEMAKER_BATCH": "true",
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": "2",
        "SAGEMAKER_BATCH_STRATEGY": "SINGLE_RECORD",
        "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "3",
        "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "application/jsonlines",
        "SAGEMAKER_SAFE_PORT_RANGE": "9000-9100",
    }
    return serve_model(model_with_graph, environment)


def test_execution_parameters_follow_workers_and_payload(served: Served) -> None:
    assert served.request("/execution-parameters")[:2] == (
        200,
        {"MaxConcurrentTransforms": 1, "BatchStrategy": "MULTI_RECORD", "MaxPayloadInMB": 2},
    )
    assert "595 s for a request" in served.log()
    assert "set, and without effect on this server: SAGEMAKER_SAFE_PORT_RANGE" in served.log()


def test_json_lines_and_csv_are_answered_record_by_record(served: Served) -> None:
    good = json.dumps({"inputs": QUESTION})
    lines = f'{good}\n{{"inputs": 3}}\nnot JSON\n{good}\n'
    status, body, headers = served.exchange(
        "POST", "/invocations", lines.encode(), content_type="application/jsonlines"
    )
    answers = [json.loads(line) for line in body.decode().splitlines()]
    assert (status, headers["content-type"]) == (200, "application/jsonlines")
    assert [sorted(each) for each in answers] == [
        ["answer", "end", "score", "start"],
        ["error", "error_type"],
        ["error", "error_type"],
        ["answer", "end", "score", "start"],
    ]
    assert answers[0] == pytest.approx(answers[3])

    table = io.StringIO()
    csv.writer(table).writerows([["question", "context"], [QUESTION["question"], QUESTION["context"]], ["What?", ""]])
    status, body, headers = served.exchange(
        "POST", "/invocations", table.getvalue().encode(), content_type="text/csv", accept="text/csv"
    )
    rows = list(csv.DictReader(io.StringIO(body.decode(), newline="")))
    assert (status, headers["content-type"]) == (200, "text/csv; charset=utf-8")
    assert rows[0]["answer"] == QUESTION["context"][int(rows[0]["start"]) : int(rows[0]["end"])]
    assert "is empty" in rows[1]["error"]
