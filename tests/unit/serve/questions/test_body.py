"""Bodies of many records with a real model: each is answered in its place, and a bad one does not affect the others."""

import csv
import io
import json
import time
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from berth.runtime.engines.engine import RowLogits
from berth.serve.errors import ServeError
from berth.serve.http.app import create_app
from berth.serve.limits import RequestLimits
from berth.serve.models.answering import QuestionAnswering
from berth.serve.questions.body import answer_body, prepare_body
from berth.serve.questions.codecs import CODECS, CSV, JSON, JSON_LINES, request_codec
from berth.serve.questions.question_answering import ModelTraits
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


@pytest.mark.slow
def test_json_lines_are_answered_like_single_requests(client: TestClient) -> None:
    records = [{"inputs": OTHER}, ONE, {"inputs": [ONE, OTHER]}, {"inputs": ONE, "parameters": {"top_k": 3}}]
    answers = lines(post(client, "\n".join(map(json.dumps, records)), JSON_LINES))
    alone = [ask(client, OTHER), ask(client, ONE), ask(client, [ONE, OTHER]), ask(client, ONE, top_k=3)]
    assert without_scores(answers) == without_scores(alone)


def without_scores(value: Any) -> Any:
    """The answers without their scores, whose last digits depend on the batch."""
    if isinstance(value, list):
        return [without_scores(each) for each in value]
    return {name: field for name, field in value.items() if name != "score"}


def test_error_of_a_json_line_is_in_its_place(tiny_client: TestClient) -> None:
    bad = ["{", json.dumps({"inputs": {"question": "Who?"}}), json.dumps({**ONE, "question": "a " * 200})]
    answers = lines(post(tiny_client, "\n".join([json.dumps(ONE), *bad, json.dumps(ONE)]), JSON_LINES))
    assert answers[0] == answers[4] == ask(tiny_client, ONE)
    assert [list(each) for each in answers[1:4]] == [["error", "error_type"]] * 3
    assert [each["error"].partition(" (")[0] for each in answers[1:3]] == [
        "the line is not JSON",
        "`inputs.context` is missing: a question needs `question` and `context`",
    ]
    assert answers[3]["error"].startswith("`inputs` can't be used: The question number 1 is too long")


def test_body_of_invalid_lines_gets_their_errors(tiny_client: TestClient) -> None:
    assert [each["error_type"] for each in lines(post(tiny_client, "{\n7", JSON_LINES))] == ["bad_request"] * 2


def test_csv_rows_are_answered_by_csv_rows(tiny_client: TestClient) -> None:
    response = post(tiny_client, as_csv(ONE, {**ONE, "context": " "}, OTHER), CSV)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/csv; charset=utf-8")
    first, refused, last = csv.reader(io.StringIO(response.text, newline=""))
    for row, question in ((first, ONE), (last, OTHER)):
        answer = ask(tiny_client, question)
        assert row[1:] == [str(answer["start"]), str(answer["end"]), answer["answer"], ""]
        assert float(row[0]) == pytest.approx(answer["score"], abs=1e-6)
    assert refused == ["", "", "", "", "`inputs.context` is empty: send some text"]


@pytest.fixture(scope="module")
def small_client(tiny_model: Path) -> TestClient:
    """The service takes 512 tokens, and so 2,048 characters or answers, per request or body."""
    return TestClient(create_app(ready_service(tiny_model, RequestLimits(tokens=512))))


LONG = json.dumps({"question": "Who?", "context": "abc " * 60})
TOO_LONG = json.dumps({"question": "Who?", "context": "a " * 900})
MANY_ANSWERS = json.dumps({"inputs": ONE, "parameters": {"top_k": 900}})


@pytest.mark.parametrize(
    ("body", "content_type", "fact"),
    [
        ("\n".join([LONG] * 10), JSON_LINES, "more than 512 tokens"),
        (f"{TOO_LONG}\n{TOO_LONG}", JSON_LINES, "more than 2048 characters"),
        ("\n".join([MANY_ANSWERS] * 3), JSON_LINES, "more than 2048 answers"),
        (
            json.dumps({"inputs": [ONE] * 3, "parameters": {"top_k": 900}}),
            JSON,
            "gives 2700 answers, over the limit of 2048",
        ),
    ],
    ids=["tokens", "characters of refused records", "answers of records", "answers of a request"],
)
def test_body_over_a_limit_is_refused(small_client: TestClient, body: str, content_type: str, fact: str) -> None:
    status, kind, sentence = error_of(post(small_client, body, content_type))
    assert (status, kind) == (413, "too_large")
    assert fact in sentence
    assert "BERTH_MAX_REQUEST_TOKENS" in sentence


def test_records_within_the_limits_of_a_body_are_answered(small_client: TestClient) -> None:
    assert lines(post(small_client, LONG, JSON_LINES))[0]["answer"]
    assert lines(post(small_client, TOO_LONG, JSON_LINES))[0]["error"].startswith("the request makes")
    assert len(lines(post(small_client, f"{MANY_ANSWERS}\n{MANY_ANSWERS}", JSON_LINES))) == 2


def test_records_after_a_full_response_get_errors(tiny_model: Path) -> None:
    service = ready_service(tiny_model)
    assert isinstance(service.answering, QuestionAnswering)
    record = json.dumps({"inputs": ONE, "parameters": {"top_k": 3}})
    codec = request_codec(JSON_LINES)
    prepared = prepare_body("\n".join([record] * 5).encode(), codec, service.answering.traits)
    logits = [RowLogits(*np.zeros((2, len(row.input_ids)), np.float32)) for row in prepared.rows]
    first = json.loads(answer_body(prepared, logits, codec).splitlines()[0])
    most = 2 * sum(len(answer["answer"]) for answer in first)
    answers = answer_body(replace(prepared, answer_characters=most), logits, codec).splitlines()
    assert [json.loads(each) for each in answers[:2]] == [first, first]
    assert ["fill the response" in json.loads(each)["error"] for each in answers[2:]] == [True] * 3


def test_total_length_of_errors_is_limited(tiny_model: Path) -> None:
    limits = RequestLimits(tokens=512 * 32, answer_characters=6000, batch=False)
    traits = ModelTraits(None, 512, 0.0, limits)  # type: ignore[arg-type]  # no line gets as far as the tokenizer
    wrong = json.dumps({f"key{number}" * 10: number for number in range(12)})
    prepared = prepare_body("\n".join([wrong] * 512).encode(), request_codec(JSON_LINES), traits)
    errors = [error for error in prepared.outcomes if isinstance(error, ServeError)]
    assert len(errors) == 512
    assert len({id(error) for error in errors}) == 2
    assert "send it alone" in errors[-1].message
    assert len(answer_body(prepared, [], CODECS[JSON_LINES])) < 2 * limits.body_answer_characters


WORST = {
    "bad lines": (JSON_LINES, b"x\n"),
    "numbers": (JSON_LINES, b"1\n"),
    "empty lines": (JSON_LINES, b"\n"),
    "rows of a column": (CSV, b"x\n"),
    "open quotes": (CSV, b'a,"b\n'),
    "quotes within quotes": (CSV, b'a","""\n'),
    "one row": (CSV, b"ab,"),
    "one line": (JSON_LINES, b"[0],"),
    "small objects": (JSON, b'{"a":0},'),
    "one key": (JSON, b'"a":{},'),
    "brackets": (JSON, b"["),
    "rows in one quote": (CSV, b"a,\n"),
}


@pytest.mark.slow
@pytest.mark.parametrize("batch", [False, True], ids=["endpoint", "batch transform"])
@pytest.mark.parametrize("name", WORST)
def test_memory_and_time_of_a_bad_body_are_limited(name: str, batch: bool) -> None:
    media_type, part = WORST[name]
    limits = RequestLimits(tokens=4096, batch=batch)
    begin = {"small objects": b"[", "one line": b"[", "one key": b"{", "rows in one quote": b'"'}.get(name, b"")
    body = begin + part * ((limits.body - 2) // len(part))
    traits = ModelTraits(None, 512, 0.0, limits)  # type: ignore[arg-type]  # no record gets as far as the tokenizer
    tracemalloc.start()
    began = time.process_time()
    with suppress(ServeError):
        answer_body(prepare_body(body, request_codec(media_type), traits), [], CODECS[media_type])
    seconds, peak = time.process_time() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 70 * len(body)
    assert seconds < 5
