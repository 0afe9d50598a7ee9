"""Requests to the ASGI application that are refused for their size or number, and clients that disconnect."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from berth.serve.http.app import create_app
from berth.serve.limits import RequestLimits
from berth.serve.models.answering import QuestionAnswering
from berth.serve.observing.figures import StageTimes
from berth.serve.workers.messages import JobRow
from berth.serve.workers.pool import WorkerPool
from tests.unit.serve.in_process import ask, error_for, error_of, ready_service

pytestmark = pytest.mark.slow


def test_too_many_windows_are_refused_before_the_model_runs(tiny_client: TestClient) -> None:
    question = {"question": "a", "context": "b " * 1000}
    assert len(ask(tiny_client, question, doc_stride=60)["answer"]) > 0
    assert error_for(tiny_client, question, doc_stride=123) == (
        413,
        "too_large",
        "the request makes 877 windows with 112256 tokens in all, over the limit of 32768 tokens: send fewer questions"
        ", a shorter context or a smaller doc_stride, or raise BERTH_MAX_REQUEST_TOKENS",
    )


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ({"question": "a" * 140_000, "context": "b"}, "questions and contexts have 140001 characters in all"),
        ([{"question": "a", "context": "b" * 70_000}] * 2, "questions and contexts have 140002 characters in all"),
    ],
    ids=["a long question", "long contexts"],
)
def test_lengths_are_checked_before_texts_are_tokenised(tiny_model: Path, inputs: Any, sentence: str) -> None:
    service = ready_service(tiny_model)
    answering = service.answering
    assert isinstance(answering, QuestionAnswering)
    without_tokenizer = replace(answering.traits, tokenizer=None)  # type: ignore[arg-type]  # it must not be used
    service._answering = replace(answering, traits=without_tokenizer)
    status, kind, message = error_for(TestClient(create_app(service)), inputs)
    assert (status, kind) == (413, "too_large")
    assert message.startswith(sentence)


def test_answers_with_too_many_characters_are_refused(client: TestClient) -> None:
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


def test_endless_body_is_refused_after_the_limit_and_closed(tiny_model: Path) -> None:
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


class HeldPool(WorkerPool):
    """A pool that holds requests back until `go` is called.

    `answered`: the numbers of the requests that it then computed; 0 is the first that arrived.
    """

    def hold(self) -> None:
        self.submitted = 0
        self.answered: list[int] = []
        self._held: list[tuple[Sequence[JobRow], Future[list[Any]]]] | None = []

    def submit(
        self, rows: Sequence[JobRow], *, repeatable: bool = True, times: StageTimes | None = None
    ) -> Future[list[Any]]:
        if self._held is None:
            return super().submit(rows)
        future: Future[list[Any]] = Future()
        self._held.append((rows, future))
        self.submitted += 1
        return future

    def go(self) -> None:
        held, self._held = self._held or [], None
        for number, (rows, future) in enumerate(held):
            if not future.cancelled():
                future.set_result(self.submit(rows).result(30))
                self.answered.append(number)


def held(model_dir: Path, limits: RequestLimits | None = None) -> tuple[HeldPool, httpx.AsyncClient]:
    """A service whose pool holds requests back, and its client."""
    service = ready_service(model_dir, limits)
    pool = service.pool
    pool.__class__ = HeldPool
    assert isinstance(pool, HeldPool)
    pool.hold()
    transport = httpx.ASGITransport(app=create_app(service))
    return pool, httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60)


def a_question(name: str) -> dict[str, Any]:
    return {"inputs": {"question": name, "context": "In Tacoma."}}


async def wait_for_first(pool: HeldPool) -> None:
    while not pool.submitted:
        await asyncio.sleep(0.01)


def test_request_is_dropped_when_its_client_disconnects(tiny_model: Path) -> None:
    """One of two clients disconnects while the pool holds their requests."""

    async def disconnect_soon(app: Any) -> list[Any]:
        sent: list[Any] = []
        received = [{"type": "http.request", "body": json.dumps(a_question("first")).encode(), "more_body": False}]

        async def receive() -> Any:
            if received:
                return received.pop()
            await asyncio.sleep(0.5)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/invocations", "headers": [], "query_string": b""}
        await app(scope, receive, send)
        return sent

    async def scene(pool: HeldPool, client: httpx.AsyncClient) -> tuple[list[Any], httpx.Response]:
        first = asyncio.create_task(disconnect_soon(client._transport.app))  # type: ignore[attr-defined]
        await wait_for_first(pool)
        second = asyncio.create_task(client.post("/invocations", json=a_question("second")))
        dropped = await first
        pool.go()
        return dropped, await second

    pool, client = held(tiny_model)
    first, second = asyncio.run(scene(pool, client))
    assert first[0]["status"] == 499
    assert second.status_code == 200
    assert pool.answered == [1]


def test_late_request_gets_504_and_is_not_computed(tiny_model: Path) -> None:
    async def scene(pool: HeldPool, client: httpx.AsyncClient) -> tuple[httpx.Response, float]:
        began = time.monotonic()
        late = await client.post("/invocations", json=a_question("late"))
        return late, time.monotonic() - began

    pool, client = held(tiny_model, RequestLimits(seconds=1))
    late, seconds = asyncio.run(scene(pool, client))
    pool.go()
    assert error_of(late) == (504, "too_late", "no answer within 1 s: send less at once, or send it again later")
    assert 1 <= seconds < 3
    assert pool.answered == []


def test_request_over_the_limit_of_requests_gets_retry_after(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestLimits, "requests", 2)

    async def scene(pool: HeldPool, client: httpx.AsyncClient) -> list[httpx.Response]:
        first = asyncio.create_task(client.post("/invocations", json=a_question("first")))
        await wait_for_first(pool)
        second = asyncio.create_task(client.post("/invocations", json=a_question("second")))
        await asyncio.sleep(0.3)
        refused = await client.post("/invocations", json=a_question("third"))
        ping = await client.get("/ping")
        pool.go()
        return [refused, ping, await first, await second]

    refused, ping, *answered = asyncio.run(scene(*held(tiny_model)))
    assert error_of(refused) == (
        503,
        "overloaded",
        "2 requests wait for an answer already: send the request again later",
    )
    assert refused.headers["retry-after"] == "1"
    assert [response.status_code for response in (ping, *answered)] == [200, 200, 200]


def test_bodies_share_a_limit_on_bytes(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestLimits, "held_bodies", 100_000)
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

    pool, client = held(tiny_model)
    pool.go()
    refused, answered, again = asyncio.run(scene(client))
    assert error_of(refused)[:2] == (503, "overloaded")
    assert error_of(refused)[2] == "100000 bytes of requests are being received already: send the request again later"
    assert refused.headers["retry-after"] == "1"
    assert answered.status_code == 200
    assert error_of(again)[:2] == (400, "bad_request")  # there is room again, so the body is read
