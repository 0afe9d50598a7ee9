"""The routes in process, over a real model: answers, offsets, statuses and bodies, /ping while the model works."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from starlette.testclient import TestClient
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from berth.serve.app import create_app
from berth.serve.handler import PreparedRequest, QuestionAnsweringHandler
from berth.serve.limits import RequestLimits
from berth.serve.service import Service

ONE = {
    "question": "What is used for inference?",
    "context": "My Name is Philipp and I live in Nuremberg. This model is used with sagemaker for inference.",
}


def ready_service(model_dir: Path, limits: RequestLimits | None = None) -> Service:
    service = Service(QuestionAnsweringHandler(limits), model_dir)
    loaded = threading.Event()
    service.start(loaded.set)
    for _ in range(600):
        if service.failure or service.ready:
            break
        loaded.wait(0.05)
    assert service.failure is None
    return service


@pytest.fixture(scope="module")
def client(minilm_model: Path) -> TestClient:
    return TestClient(create_app(ready_service(minilm_model, RequestLimits(payload=100_000))))


@pytest.fixture(scope="module")
def tiny_client(tiny_model: Path) -> TestClient:
    return TestClient(create_app(ready_service(tiny_model)))


def ask(client: TestClient, inputs: Any, **parameters: Any) -> Any:
    body = {"inputs": inputs} | ({"parameters": parameters} if parameters else {})
    response = client.post("/invocations", json=body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    return response.json()


def test_one_question(client: TestClient) -> None:
    answer = ask(client, ONE)
    assert list(answer) == ["score", "start", "end", "answer"]
    assert isinstance(answer["start"], int)
    assert 0 < answer["score"] <= 1
    assert answer["answer"] == ONE["context"][answer["start"] : answer["end"]] != ""


def test_a_list_keeps_its_order_and_agrees_with_single_questions(client: TestClient) -> None:
    questions = [ONE, {**ONE, "question": "Who lives in Nuremberg?"}, {"question": "Where?", "context": "In Tacoma."}]
    answers = ask(client, questions)
    assert len(answers) == 3
    for question, answer in zip(questions, answers, strict=True):
        alone = ask(client, question)
        assert answer["score"] == pytest.approx(alone.pop("score"), abs=1e-5)
        assert alone.items() <= answer.items()
    assert ask(client, [ONE]) == [ask(client, ONE)]


def test_scores_equal_a_direct_computation(client: TestClient, minilm_model: Path) -> None:
    """Softmax of starts times softmax of ends over context and [CLS], computed without any of the kit's code.

    Every word of this context is one token and stands there once, so that no two spans share a text or a word.
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


@pytest.mark.parametrize("piece", PIECES, ids=[ascii(piece) for piece in PIECES])
@pytest.mark.parametrize("repeat", [1, 40], ids=["short", "several windows"])
def test_offsets_are_those_of_the_text_that_was_sent(client: TestClient, piece: str, repeat: int) -> None:
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


def test_answers_are_written_as_they_are(client: TestClient) -> None:
    body = {"inputs": {"question": "Wo?", "context": "Zürich🙂"}}
    assert "Zürich🙂".encode() in client.post("/invocations", json=body).content


def test_the_end_of_a_long_context_is_read(tiny_client: TestClient) -> None:
    """Every part of a context of many windows can be an answer, so among all spans some lie in the last window."""
    context = "abc def ghi jkl " * 60 + "zzz"
    answers = ask(tiny_client, {"question": "zzz?", "context": context}, top_k=1000, max_answer_len=3)
    assert "zzz" in {answer["answer"] for answer in answers}


@pytest.mark.parametrize("context", ["\0", "\u200b\u200b", "\u0301"], ids=ascii)
def test_a_context_without_a_token_has_no_answer(tiny_client: TestClient, context: str) -> None:
    answer = ask(tiny_client, {"question": "what?", "context": context})
    assert answer["answer"] == context[answer["start"] : answer["end"]]


def test_parameters(tiny_client: TestClient) -> None:
    question = {"question": "what?", "context": "abc def ghi"}
    several = ask(tiny_client, question, top_k=3)
    assert len(several) == 3
    assert [len(answers) for answers in ask(tiny_client, [question, question], top_k=2)] == [2, 2]
    assert isinstance(ask(tiny_client, question, top_k=1), dict)
    letters = ask(tiny_client, {"question": "what?", "context": "a b c d e f g"}, max_answer_len=2, top_k=100)
    assert max(len(answer["answer"].split()) for answer in letters) == 2
    with_none = ask(tiny_client, question, top_k=1000, handle_impossible_answer=True)
    assert [(answer["start"], answer["end"]) for answer in with_none if answer["answer"] == ""] == [(0, 0)]
    assert ask(tiny_client, {"question": "w?", "context": "abc " * 50}, max_seq_len=32, doc_stride=8)["answer"]


@pytest.mark.parametrize("words", [60, 100, 124])
def test_a_long_question_over_a_long_context_is_answered(tiny_client: TestClient, words: int) -> None:
    """The default stride gives way to a question that leaves less room than it."""
    assert ask(tiny_client, {"question": "a " * words, "context": "abc " * 50})["answer"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"content-type": ""}, 200),
        ({"content-type": "application/json; charset=utf-8", "accept": "application/json, text/plain"}, 200),
        ({"accept": "*/*"}, 200),
        ({"content-type": "text/csv"}, 415),
        ({"accept": "text/csv"}, 406),
    ],
)
def test_headers(tiny_client: TestClient, headers: dict[str, str], status: int) -> None:
    response = tiny_client.post("/invocations", content=json.dumps({"inputs": ONE}).encode(), headers=headers)
    assert response.status_code == status
    if status != 200:
        assert list(response.json()) == ["error", "error_type"]


def error_of(response: Any) -> tuple[int, str, str]:
    body = response.json()
    assert list(body) == ["error", "error_type"]
    assert response.headers["content-type"] == "application/json"
    return response.status_code, body["error_type"], body["error"]


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
            json.dumps({"inputs": ONE, "parameters": {"max_seq_len": 64, "doc_stride": 64}}).encode(),
            400,
            "bad_request",
            "`parameters` can't be used: doc_stride (64) must be at least 0 and smaller than max_seq_len (64).",
        ),
        (b'{"\\ud83d": 1}', 400, "bad_request", "unknown key `\ud83d` in the body"),
    ],
    ids=["json", "empty", "type", "long question", "no room for the stride", "window", "stride", "surrogate"],
)
def test_bad_requests(tiny_client: TestClient, body: bytes, status: int, kind: str, sentence: str) -> None:
    got = error_of(tiny_client.post("/invocations", content=body))
    assert got[:2] == (status, kind)
    assert got[2].startswith(sentence)


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large(client: TestClient, chunked: bool) -> None:
    body = json.dumps({"inputs": {**ONE, "context": "word " * 20_000}}).encode()
    content: Any = iter([body[:50_000], body[50_000:]]) if chunked else body
    status, kind, sentence = error_of(client.post("/invocations", content=content))
    assert (status, kind) == (413, "too_large")
    assert sentence.startswith(
        f"the body has {len(body)} bytes, over the limit of 100000: send fewer questions at once"
    )


def test_paths_and_methods(tiny_client: TestClient) -> None:
    assert error_of(tiny_client.get("/")) == (
        404,
        "not_found",
        "no such path: this server answers GET /ping and POST /invocations",
    )
    refused = tiny_client.get("/invocations")
    assert error_of(refused) == (405, "method_not_allowed", "/invocations does not take GET")
    assert refused.headers["allow"] == "POST"


class BrokenHandler(QuestionAnsweringHandler):
    """A handler whose predictions fail as nobody foresaw."""

    def predict(self, prepared: PreparedRequest, *others: Any) -> Any:
        if prepared.request.questions[0].question == "boom":
            raise KeyError("a secret of the inside")
        return super().predict(prepared, *others)


def test_the_unforeseen_has_an_id_and_no_traceback(tiny_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    service = Service(BrokenHandler(), tiny_model)
    service.start()
    while not service.ready:
        time.sleep(0.01)
    broken = TestClient(create_app(service))
    with caplog.at_level(logging.ERROR):
        status, kind, sentence = error_of(
            broken.post("/invocations", json={"inputs": {"question": "boom", "context": "a"}})
        )
    assert (status, kind) == (500, "internal")
    assert "secret" not in sentence
    identifier = sentence.rsplit(" ", 1)[1]
    assert identifier in caplog.text
    assert "KeyError: 'a secret of the inside'" in caplog.text
    assert ask(broken, ONE)["answer"]  # and the model's thread lives on


@pytest.fixture
def nan_model(tiny_model: Path, tmp_path: Path) -> Path:
    model = AutoModelForQuestionAnswering.from_pretrained(tiny_model)
    with torch.no_grad():
        model.qa_outputs.bias.fill_(float("nan"))
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path)
    return tmp_path


def failed(model_dir: Path) -> tuple[Service, TestClient]:
    service = Service(QuestionAnsweringHandler(), model_dir)
    done = threading.Event()
    service.start(done.set)
    assert done.wait(30)
    return service, TestClient(create_app(service))


def test_a_model_whose_scores_are_no_numbers_never_becomes_ready(nan_model: Path) -> None:
    _, client = failed(nan_model)
    status, kind, sentence = error_of(client.get("/ping"))
    assert (status, kind) == (503, "not_ready")
    assert "not numbers" in sentence
    assert error_of(client.post("/invocations", json={"inputs": ONE})) == (status, kind, sentence)


def test_a_model_without_a_head_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    AutoModelForQuestionAnswering.from_pretrained(tiny_model).bert.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path)
    _, client = failed(tmp_path)
    assert error_of(client.get("/ping"))[2] == (
        f"the weights in {tmp_path} lack qa_outputs.bias, qa_outputs.weight: "
        "fine-tune the model for question answering first"
    )


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("model.safetensors", "the model in {} can't be loaded (SafetensorError: "),
        ("tokenizer.json", "the tokenizer in {} can't be loaded ("),
        ("config.json", "{}/config.json can't be read ("),
    ],
)
def test_damaged_files(tiny_model: Path, tmp_path: Path, name: str, sentence: str) -> None:
    for path in tiny_model.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:40])
    _, client = failed(tmp_path)
    got = error_of(client.get("/ping"))[2]
    assert got.startswith(sentence.format(tmp_path))
    assert "\n" not in got


def test_ping_is_not_behind_the_model(minilm_model: Path) -> None:
    """While an inference of seconds runs, /ping answers within milliseconds, and the inference still ends well."""
    service = ready_service(minilm_model)
    long = {"inputs": [{**ONE, "context": ONE["context"] * 30}] * 8}

    async def scene() -> tuple[list[float], httpx.Response]:
        transport = httpx.ASGITransport(app=create_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60) as client:
            invocation = asyncio.create_task(client.post("/invocations", json=long))
            while not service.busy:
                await asyncio.sleep(0.001)
            waits = []
            while not invocation.done():
                began = time.monotonic()
                assert (await client.get("/ping")).status_code == 200
                waits.append(time.monotonic() - began)
                await asyncio.sleep(0.02)
            return waits, await invocation

    waits, response = asyncio.run(scene())
    assert response.status_code == 200
    assert len(response.json()) == 8
    assert len(waits) >= 10
    assert sorted(waits)[len(waits) // 2] < 0.05


def test_invocations_are_logged_and_pings_are_not(tiny_client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="berth"):
        tiny_client.get("/ping")
        tiny_client.get("/no%0Aline")
        ask(tiny_client, ONE)
    lines = [record.getMessage() for record in caplog.records]
    assert [line.rsplit(" in ", 1)[0] for line in lines] == ["GET /no%0Aline 404", "POST /invocations 200"]


def error_for(client: TestClient, inputs: Any, **parameters: Any) -> tuple[int, str, str]:
    return error_of(client.post("/invocations", json={"inputs": inputs, "parameters": parameters}))


def test_a_window_for_each_token_is_refused_before_the_model_runs(tiny_client: TestClient) -> None:
    question = {"question": "a", "context": "b " * 1000}
    assert len(ask(tiny_client, question, doc_stride=60)["answer"]) > 0
    assert error_for(tiny_client, question, doc_stride=123) == (
        413,
        "too_large",
        "the request makes 877 windows with 112256 tokens in all, over the limit of 32768 tokens: send fewer questions"
        ", a shorter context or a smaller doc_stride, or raise BERTH_MAX_REQUEST_TOKENS",
    )


class NoTokenizer:
    """Fails the test that comes as far as to it."""

    is_fast = True

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("the texts were tokenised")


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ([ONE] * 1025, "the request has 1025 questions, over the limit of 1024"),
        ({"question": "a" * 140_000, "context": "b"}, "questions and contexts have 140001 characters in all"),
        ([{"question": "a", "context": "b" * 70_000}] * 2, "questions and contexts have 140002 characters in all"),
    ],
    ids=["questions", "a long question", "long contexts"],
)
def test_lengths_are_checked_before_texts_are_tokenised(tiny_model: Path, inputs: Any, sentence: str) -> None:
    service = ready_service(tiny_model)
    service._model = replace(service._model, tokenizer=NoTokenizer())  # type: ignore[type-var]
    status, kind, said = error_for(TestClient(create_app(service)), inputs)
    assert (status, kind) == (413, "too_large")
    assert said.startswith(sentence)


def test_answers_that_are_too_long_together_are_refused(client: TestClient) -> None:
    words = " ".join(f"{number:0>200}" for number in range(350))
    assert error_for(client, {"question": "a", "context": words}, top_k=1000, max_answer_len=384) == (
        413,
        "too_large",
        "the spans that compete to be answers have more than 16000000 characters in all: lower `top_k` or "
        "`max_answer_len`, or ask less at once",
    )
    assert error_for(client, {"question": "a", "context": words}, top_k=150, max_answer_len=100)[2].startswith(
        "the answers have more than 1000000 characters in all"
    )


def test_a_body_without_end_is_not_read_to_its_end(tiny_model: Path) -> None:
    app = create_app(ready_service(tiny_model, RequestLimits(payload=100_000)))
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 10_000
            yield b" " * 10_000

    async def scene() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
            return await client.post("/invocations", content=endless())

    response = asyncio.run(scene())
    assert error_of(response) == (
        413,
        "too_large",
        "the body has more than 200000 bytes, over the limit of 100000: send fewer questions at once, or raise "
        "SAGEMAKER_MAX_PAYLOAD_IN_MB",
    )
    assert response.headers["connection"] == "close"
    assert sent == 210_000


class Held(QuestionAnsweringHandler):
    """A model that begins each request at once, and goes on only when it may; `answered` says whom it finished."""

    def __init__(self, limits: RequestLimits | None = None) -> None:
        super().__init__(limits)
        self.begun, self.go = threading.Semaphore(0), threading.Event()
        self.answered: list[str] = []

    def predict(self, prepared: PreparedRequest, *others: Any) -> Any:
        self.begun.release()
        assert self.go.wait(30)
        prediction = super().predict(prepared, *others)
        self.answered.append(prepared.request.questions[0].question)
        return prediction


@contextmanager
def held(model_dir: Path, limits: RequestLimits | None = None) -> Iterator[tuple[Held, httpx.AsyncClient]]:
    handler = Held(limits)
    service = Service(handler, model_dir)
    handler.go.set()
    service.start()
    while not service.ready:
        time.sleep(0.01)
    handler.go.clear()
    handler.answered.clear()
    while handler.begun.acquire(blocking=False):
        pass
    transport = httpx.ASGITransport(app=create_app(service))
    try:
        yield handler, httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60)
    finally:
        handler.go.set()


def a_question(name: str) -> dict[str, Any]:
    return {"inputs": {"question": name, "context": "In Tacoma."}}


async def begun(handler: Held) -> None:
    while not handler.begun.acquire(blocking=False):
        await asyncio.sleep(0.01)


def test_a_client_that_goes_takes_its_request_with_it(tiny_model: Path) -> None:
    """One of them is with the model already, the other waits for it."""

    async def gone_after(seconds: float, app: Any, name: str) -> list[Any]:
        sent: list[Any] = []
        received = [{"type": "http.request", "body": json.dumps(a_question(name)).encode(), "more_body": False}]

        async def receive() -> Any:
            if received:
                return received.pop()
            await asyncio.sleep(seconds)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/invocations", "headers": [], "query_string": b""}
        await app(scope, receive, send)
        return sent

    async def scene(handler: Held, client: httpx.AsyncClient) -> tuple[list[Any], list[Any], httpx.Response]:
        app = client._transport.app  # type: ignore[attr-defined]
        first = asyncio.create_task(gone_after(0.5, app, "first"))
        await begun(handler)
        second = asyncio.create_task(gone_after(0.2, app, "second"))
        third = asyncio.create_task(client.post("/invocations", json=a_question("third")))
        gone = await first, await second
        handler.go.set()
        return *gone, await third

    with held(tiny_model) as (handler, client):
        first, second, third = asyncio.run(scene(handler, client))
    assert first[0]["status"] == second[0]["status"] == 499
    assert third.status_code == 200
    assert handler.answered == ["third"]


def test_what_would_wait_too_long_is_told_when_to_come_again(tiny_model: Path) -> None:
    async def scene(handler: Held, client: httpx.AsyncClient) -> list[httpx.Response]:
        first = asyncio.create_task(client.post("/invocations", json=a_question("first")))
        await begun(handler)
        second = asyncio.create_task(client.post("/invocations", json=a_question("second")))
        await asyncio.sleep(0.3)
        refused = await client.post("/invocations", json=a_question("third"))
        ping = await client.get("/ping")
        handler.go.set()
        return [refused, ping, await first, await second]

    with held(tiny_model, FewRequests()) as (handler, client):
        refused, ping, *answered = asyncio.run(scene(handler, client))
    assert error_of(refused) == (
        503,
        "overloaded",
        "2 requests wait for an answer already: send the request again later",
    )
    assert refused.headers["retry-after"] == "1"
    assert [response.status_code for response in (ping, *answered)] == [200, 200, 200]


class FewRequests(RequestLimits):
    """Two requests at one time."""

    @property
    def requests(self) -> int:
        return 2


def test_bodies_have_a_budget_together(tiny_model: Path) -> None:
    body = b'{"inputs": ' + b" " * 60_000

    async def scene(client: httpx.AsyncClient) -> tuple[httpx.Response, ...]:
        half = asyncio.Event()

        async def slowly() -> AsyncIterator[bytes]:
            yield body
            half.set()
            await asyncio.sleep(0.5)
            yield json.dumps(a_question("first")["inputs"]).encode() + b"}"

        first = asyncio.create_task(client.post("/invocations", content=slowly()))
        await half.wait()
        refused = await client.post("/invocations", content=body + b" " * 30_000)
        return refused, await first, await client.post("/invocations", content=body + b" " * 30_000)

    with held(tiny_model, FewBytes()) as (handler, client):
        handler.go.set()
        refused, answered, again = asyncio.run(scene(client))
    assert error_of(refused)[:2] == (503, "overloaded")
    assert error_of(refused)[2] == "100000 bytes of requests are being received already: send the request again later"
    assert refused.headers["retry-after"] == "1"
    assert answered.status_code == 200
    assert error_of(again)[:2] == (400, "bad_request")  # there is room again: what it says is read


class FewBytes(RequestLimits):
    """100,000 bytes at one time."""

    @property
    def held_bodies(self) -> int:
        return 100_000
