"""Requests to the ASGI application with a real model: answers, offsets, statuses and bodies."""

import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from starlette.testclient import TestClient
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from berth.serve.http.app import create_app
from berth.serve.workers.pool import EngineError
from tests.unit.serve.in_process import ONE, ask, error_of, ready_service


def test_list_is_answered_in_order_as_single_questions_are(client: TestClient) -> None:
    questions = [ONE, {**ONE, "question": "Who lives in Nuremberg?"}, {"question": "Where?", "context": "In Tacoma."}]
    answers = ask(client, questions)
    assert len(answers) == 3
    for question, answer in zip(questions, answers, strict=True):
        alone = ask(client, question)
        assert list(alone) == ["score", "start", "end", "answer"]
        assert answer["score"] == pytest.approx(alone.pop("score"), abs=1e-5)
        assert alone.items() <= answer.items()
    assert ask(client, [ONE]) == [ask(client, ONE)]


def test_scores_equal_softmax_products(client: TestClient, minilm_model: Path) -> None:
    """A score is the softmax of the start logits times that of the end logits, over context and [CLS].

    Every word of this context is one token and occurs once, so no two spans have the same text.
    """
    question, context = "What is the name of the river?", "the old city on a wide river has seven small stone bridges"
    tokenizer = AutoTokenizer.from_pretrained(minilm_model)
    assert len(set(tokenizer.tokenize(context))) == len(context.split()) == len(tokenizer.tokenize(context))
    encoding = tokenizer(question, context, return_tensors="pt", return_offsets_mapping=True)
    offsets = encoding.pop("offset_mapping")[0].tolist()
    inside = [index for index, sequence in enumerate(encoding.sequence_ids(0)) if sequence == 1]
    with torch.no_grad():
        output = AutoModelForQuestionAnswering.from_pretrained(minilm_model).eval()(**encoding)
    kept = [0, *inside]
    starts = dict(zip(kept, output.start_logits[0, kept].softmax(0).tolist(), strict=True))
    ends = dict(zip(kept, output.end_logits[0, kept].softmax(0).tolist(), strict=True))
    expected = sorted(
        (
            (starts[first] * ends[last], offsets[first][0], offsets[last][1])
            for first in inside
            for last in inside
            if first <= last < first + 4
        ),
        reverse=True,
    )
    answers = ask(client, {"question": question, "context": context}, top_k=10, max_answer_len=4)
    assert [(answer["start"], answer["end"]) for answer in answers] == [span[1:] for span in expected[:10]]
    assert [answer["score"] for answer in answers] == pytest.approx([span[0] for span in expected[:10]], abs=1e-6)


PIECES = [
    "Zürich 🙂",
    "cafe\u0301",
    "line\r\nbreak",
    "\u200dzero",
    "日本語 text",
    "a\0b",
    "half \ud83d half",
    "İstanbul ß",
]


@pytest.mark.slow
@pytest.mark.parametrize("piece", PIECES, ids=[ascii(piece) for piece in PIECES])
@pytest.mark.parametrize("repeat", [1, 40], ids=["short", "several windows"])
def test_offsets_count_characters_of_the_sent_context(client: TestClient, piece: str, repeat: int) -> None:
    context = f"It was {piece} in the year 1999, they said. " * repeat
    body = json.dumps({"inputs": {"question": "What?", "context": context}, "parameters": {"top_k": 20}})
    response = client.post("/invocations", content=body.encode())
    assert response.status_code == 200, response.text
    answers = json.loads(response.content.decode("utf-8"))
    assert 0 < len(answers) <= 20
    for answer in answers:
        assert answer["answer"] == context[answer["start"] : answer["end"]]
        assert 0 <= answer["start"] < answer["end"] <= len(context)
    assert [answer["score"] for answer in answers] == sorted((answer["score"] for answer in answers), reverse=True)


def test_answer_is_utf_8_without_escapes(client: TestClient) -> None:
    body = {"inputs": {"question": "Wo?", "context": "Zürich🙂"}}
    assert "Zürich🙂".encode() in client.post("/invocations", json=body).content


@pytest.mark.slow
def test_last_window_of_a_long_context_can_be_the_answer(tiny_client: TestClient) -> None:
    """`top_k` 1000 returns all spans, including those of the last window."""
    context = "abc def ghi jkl " * 60 + "zzz"
    answers = ask(tiny_client, {"question": "zzz?", "context": context}, top_k=1000, max_answer_len=3)
    assert "zzz" in {answer["answer"] for answer in answers}


@pytest.mark.parametrize("context", ["\0", "\u200b\u200b", "\u0301"], ids=ascii)
def test_context_without_a_token_gets_the_empty_answer(tiny_client: TestClient, context: str) -> None:
    answer = ask(tiny_client, {"question": "what?", "context": context})
    assert answer["answer"] == context[answer["start"] : answer["end"]]


def test_parameters_change_the_answers(tiny_client: TestClient) -> None:
    question = {"question": "what?", "context": "abc def ghi"}
    several = ask(tiny_client, question, top_k=3)
    assert len(several) == 3
    assert [len(answers) for answers in ask(tiny_client, [question, question], top_k=2)] == [2, 2]
    assert isinstance(ask(tiny_client, question, top_k=1), dict)
    letters = ask(tiny_client, {"question": "what?", "context": "a b c d e f g"}, max_answer_len=2, top_k=100)
    assert max(len(answer["answer"].split()) for answer in letters) == 2
    with_empty = ask(tiny_client, question, top_k=1000, handle_impossible_answer=True)
    assert [(answer["start"], answer["end"]) for answer in with_empty if answer["answer"] == ""] == [(0, 0)]
    assert ask(tiny_client, {"question": "w?", "context": "abc " * 50}, max_seq_len=32, doc_stride=8)["answer"]


@pytest.mark.parametrize("words", [60, 100, 124])
def test_default_stride_shrinks_for_a_long_question(tiny_client: TestClient, words: int) -> None:
    """If a question leaves less room than the default stride, the stride becomes half of that room."""
    assert ask(tiny_client, {"question": "a " * words, "context": "abc " * 50})["answer"]


LONG_QUESTION = "a " * 200


@pytest.mark.parametrize(
    ("body", "status", "kind", "sentence"),
    [
        (b"{", 400, "bad_request", "the body is not JSON"),
        (b'{"inputs": []}', 400, "bad_request", "`inputs` is an empty list"),
        (b'{"inputs": [{"question": "a", "context": 5}]}', 400, "bad_request", "`inputs[0].context` is a number"),
        (
            json.dumps({"inputs": [ONE, {"question": LONG_QUESTION, "context": "b"}]}).encode(),
            400,
            "bad_request",
            "`inputs[1]` can't be used: The question number 2 is too long",
        ),
        (
            json.dumps(
                {"inputs": {"question": "a " * 100, "context": "b " * 50}, "parameters": {"doc_stride": 64}}
            ).encode(),
            400,
            "bad_request",
            "`inputs` can't be used: The question number 1 is too long: with it 25 of a window's 128 tokens are left "
            "for the context, and more than 64 (doc_stride) are needed; shorten it, raise max_seq_len or lower doc_",
        ),
        (
            json.dumps({"inputs": ONE, "parameters": {"max_seq_len": 129}}).encode(),
            400,
            "bad_request",
            "`parameters.max_seq_len` is 129: this model takes at most 128 tokens",
        ),
        (
            json.dumps({"inputs": [ONE], "parameters": {"max_seq_len": 5}}).encode(),
            400,
            "bad_request",
            "`parameters.max_seq_len` is 5, which leaves too little room for the context next to the question of "
            "`inputs[0]`: raise it, up to 128 with this model, or leave it out",
        ),
        (
            json.dumps({"inputs": ONE, "parameters": {"max_seq_len": 64, "doc_stride": 64}}).encode(),
            400,
            "bad_request",
            "`parameters` can't be used: doc_stride (64) must be at least 0 and smaller than max_seq_len (64).",
        ),
        (b'{"\\ud83d": 1}', 400, "bad_request", "unknown key `\ud83d` in the body"),
    ],
    ids=[
        "json",
        "empty",
        "type",
        "long question",
        "no room for the stride",
        "window",
        "small window",
        "stride",
        "surrogate",
    ],
)
def test_invalid_request_is_refused_with_the_reason(
    tiny_client: TestClient, body: bytes, status: int, kind: str, sentence: str
) -> None:
    error = error_of(tiny_client.post("/invocations", content=body))
    assert error[:2] == (status, kind)
    assert error[2].startswith(sentence)


def test_unknown_path_and_method_are_refused(tiny_client: TestClient) -> None:
    assert error_of(tiny_client.get("/nowhere")) == (
        404,
        "not_found",
        "no such path: with SAGEMAKER_MULTI_MODEL false this server answers GET /ping, GET /execution-parameters, "
        "GET /metrics, POST /invocations and GET /",
    )
    refused = tiny_client.get("/invocations")
    assert error_of(refused) == (405, "method_not_allowed", "/invocations does not take GET: it takes POST")
    assert refused.headers["allow"] == "POST"


def test_unexpected_error_gets_an_id_and_no_traceback(tiny_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    service = ready_service(tiny_model)
    client = TestClient(create_app(service))
    failed: Future[Any] = Future()
    failed.set_exception(EngineError("KeyError: 'a secret of the inside'"))
    with patch.object(service.pool, "submit", return_value=failed):
        status, kind, sentence = error_of(client.post("/invocations", json={"inputs": ONE}))
    assert (status, kind) == (500, "internal")
    assert "secret" not in sentence
    identifier = sentence.rsplit(" ", 1)[1]
    assert identifier in caplog.text
    assert "KeyError: 'a secret of the inside'" in caplog.text
    assert ask(client, ONE)["answer"]  # the workers still run


def test_execution_parameters_have_defaults(tiny_client: TestClient) -> None:
    response = tiny_client.get("/execution-parameters")
    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert response.json() == {"MaxConcurrentTransforms": 1, "BatchStrategy": "MULTI_RECORD", "MaxPayloadInMB": 6}


def test_answer_has_the_type_that_the_environment_sets(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT", "application/jsonlines")
    client = TestClient(create_app(ready_service(tiny_model)))
    assert client.post("/invocations", json=ONE).headers["content-type"] == "application/jsonlines"
    as_json = client.post("/invocations", json=ONE, headers={"accept": "application/json"})
    assert as_json.headers["content-type"] == "application/json"
