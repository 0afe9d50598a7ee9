"""Bodies of many records in process, over a real model: each is answered in its place, and costs no other anything."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from berth.serve.app import create_app
from berth.serve.codecs import CSV, JSON, JSON_LINES
from berth.serve.limits import RequestLimits
from tests.unit.serve.in_process import ONE, ask, error_of, ready_service

OTHER = {"question": "Who?", "context": 'Zürich, "the old city",\nis where Philipp lives. ' * 30}


def post(client: TestClient, body: str, content_type: str, accept: str | None = None) -> Any:
    headers = {"content-type": content_type} | ({"accept": accept} if accept else {})
    return client.post("/invocations", content=body.encode(), headers=headers)


def lines(response: Any) -> list[Any]:
    assert (response.status_code, response.headers["content-type"]) == (200, JSON_LINES)
    return [json.loads(line) for line in response.text.split("\n")[:-1]]


def as_csv(*questions: dict[str, str]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([each["question"], each["context"]] for each in questions)
    return text.getvalue()


def test_each_line_of_json_is_answered_as_alone(client: TestClient) -> None:
    asked = [{"inputs": OTHER}, ONE, {"inputs": [ONE, OTHER]}, {"inputs": ONE, "parameters": {"top_k": 3}}]
    answers = lines(post(client, "\n".join(map(json.dumps, asked)), JSON_LINES))
    alone = [ask(client, OTHER), ask(client, ONE), ask(client, [ONE, OTHER]), ask(client, ONE, top_k=3)]
    assert without_scores(answers) == without_scores(alone)


def without_scores(value: Any) -> Any:
    """Scores depend on the batch in their last digits."""
    if isinstance(value, list):
        return [without_scores(each) for each in value]
    return {name: given for name, given in value.items() if name != "score"}


def test_a_bad_line_is_answered_in_its_place(tiny_client: TestClient) -> None:
    bad = ["{", json.dumps({"inputs": {"question": "Who?"}}), json.dumps({**ONE, "question": "a " * 200})]
    answers = lines(post(tiny_client, "\n".join([json.dumps(ONE), *bad, json.dumps(ONE)]), JSON_LINES))
    assert answers[0] == answers[4] == ask(tiny_client, ONE)
    assert [list(each) for each in answers[1:4]] == [["error", "error_type"]] * 3
    assert [each["error"].partition(" (")[0] for each in answers[1:3]] == [
        "the line is not JSON",
        "`inputs.context` is missing: a question needs `question` and `context`",
    ]
    assert answers[3]["error"].startswith("`inputs` can't be used: The question number 1 is too long")


def test_lines_of_which_none_is_good_need_no_model(tiny_client: TestClient) -> None:
    assert [each["error_type"] for each in lines(post(tiny_client, "{\n7", JSON_LINES))] == ["bad_request"] * 2


def test_rows_of_csv_are_answered_by_rows(tiny_client: TestClient) -> None:
    response = post(tiny_client, as_csv(ONE, {**ONE, "context": " "}, OTHER), CSV)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/csv; charset=utf-8")
    first, refused, last = csv.reader(io.StringIO(response.text, newline=""))
    for row, asked in ((first, ONE), (last, OTHER)):
        answer = ask(tiny_client, asked)
        assert row[1:] == [str(answer["start"]), str(answer["end"]), answer["answer"], ""]
        assert float(row[0]) == pytest.approx(answer["score"], abs=1e-6)
    assert refused == ["", "", "", "", "`inputs.context` is empty: send some text"]


def test_a_header_comes_back_as_a_header(tiny_client: TestClient) -> None:
    response = post(tiny_client, "question,context\n" + as_csv(ONE), CSV)
    assert response.text.split("\r\n")[0] == "score,start,end,answer,error"


@pytest.mark.parametrize(
    ("accept", "content_type"), [(JSON, JSON), (JSON_LINES, JSON_LINES), (CSV, "text/csv; charset=utf-8")]
)
def test_an_answer_comes_in_the_type_that_is_accepted(tiny_client: TestClient, accept: str, content_type: str) -> None:
    response = post(tiny_client, as_csv(ONE, ONE), CSV, accept)
    assert response.headers["content-type"] == content_type
    assert response.text.count(ask(tiny_client, ONE)["answer"]) == 2


def test_records_that_are_too_much_together_are_refused(tiny_model: Path) -> None:
    client = TestClient(create_app(ready_service(tiny_model, RequestLimits(tokens=512))))
    asked = [json.dumps({"question": "Who?", "context": "abc " * 60})] * 20
    status, kind, sentence = error_of(post(client, "\n".join(asked), JSON_LINES))
    assert (status, kind) == (413, "too_large")
    assert sentence.endswith(
        "of 20 records reach the limit of 512 tokens: send fewer at once (in a batch transform a smaller "
        "MaxPayloadInMB), or raise BERTH_MAX_REQUEST_TOKENS"
    )
    assert lines(post(client, asked[0], JSON_LINES))[0]["answer"]


def test_one_record_of_json_is_refused_with_its_status(tiny_client: TestClient) -> None:
    assert error_of(post(tiny_client, "7", JSON))[:2] == (400, "bad_request")
    assert error_of(post(tiny_client, json.dumps({"inputs": [ONE]}), JSON, "text/html"))[:2] == (406, "not_acceptable")
