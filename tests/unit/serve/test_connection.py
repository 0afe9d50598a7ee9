"""Connections over real sockets: deadlines, the limit on them, and requests that are no HTTP."""

import asyncio
import json
import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPResponse
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from berth.serve.access_log import AccessLog
from berth.serve.connection import LARGE_HEADER, ClientConnection, WaitingConnections
from berth.serve.figures import Load
from berth.serve.limits import RequestLimits
from berth.serve.metrics import Metrics

PING = b"GET /ping HTTP/1.1\r\nHost: a\r\n\r\n"
HALF_A_BODY = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n12345"
LARGE = 30_000_000


class ReadableMetrics(Metrics):
    """The server's metrics, read one by one."""

    def value(self, name: str, labels: dict[str, str]) -> float:
        return self._registry.get_sample_value(name, labels) or 0.0


METRICS = ReadableMetrics(Load)


class Fast(RequestLimits):
    """Limits in which a test need not wait; four connections at one time."""

    @property
    def connections(self) -> int:
        return 4


async def ping(_request: Request) -> Response:
    return Response(b"pong")


async def echo(request: Request) -> Response:
    try:
        return Response(await request.body())
    except ClientDisconnect:
        return Response(status_code=499)


BEGUN, GO = threading.Semaphore(0), threading.Event()


async def slow(_request: Request) -> Response:
    """Says that it has begun, and ends when it may."""
    BEGUN.release()
    while not GO.is_set():
        await asyncio.sleep(0.01)
    return Response(b"late")


async def large(_request: Request) -> Response:
    return Response(b"x" * LARGE)


Connect = Callable[..., socket.socket]


@contextmanager
def listening(limits: RequestLimits) -> Iterator[Connect]:
    """A server with these limits, as a function that connects to it and sends something."""
    routes = [
        Route("/ping", ping),
        Route("/echo", echo, methods=["POST"]),
        Route("/slow", slow),
        Route("/large", large),
    ]
    app = AccessLog(Starlette(routes=routes), METRICS)
    protocol: Any = partial(ClientConnection, WaitingConnections(limits, app.note_refusal))
    options: Any = {"http": protocol, "ws": "none", "lifespan": "off", "log_config": None, "access_log": False}
    server = uvicorn.Server(uvicorn.Config(app, **options))
    clients: list[socket.socket] = []

    def connect(start: bytes = b"") -> socket.socket:
        client = socket.create_connection(sock.getsockname(), timeout=20)
        clients.append(client)
        client.sendall(start)
        return client

    with socket.create_server(("127.0.0.1", 0)) as sock:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
        thread.start()
        try:
            yield connect
        finally:
            for client in clients:
                client.close()
            server.should_exit = True
            thread.join(20)


@pytest.fixture(scope="module")
def connect() -> Iterator[Connect]:
    with listening(RequestLimits(header_seconds=0.5, body_seconds=0.5, taking_seconds=0.5)) as connecting:
        yield connecting


def everything(client: socket.socket) -> bytes:
    """What the server sends until it hangs up."""
    received = b""
    try:
        while part := client.recv(65536):
            received += part
    except ConnectionResetError:
        pass
    return received


def answer(client: socket.socket) -> bytes:
    """The body of the next response, which must be a 200."""
    response = HTTPResponse(client)
    response.begin()
    assert response.status == 200
    return response.read()


def slow_answer(connect: Connect) -> socket.socket:
    """A connection whose request is being answered, until GO."""
    GO.clear()
    client = connect(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
    assert BEGUN.acquire(timeout=20)
    return client


def refusal(client: socket.socket) -> tuple[int, Any]:
    head, _, body = everything(client).partition(b"\r\n\r\n")
    assert b"\r\nconnection: close" in head.lower()
    assert b"\r\ncontent-type: application/json" in head.lower()
    return int(head.split()[1]), json.loads(body)


def test_an_answer_and_another_one_on_the_same_connection(connect: Connect) -> None:
    client = connect(PING)
    assert answer(client) == b"pong"
    time.sleep(1)  # longer than any deadline: between requests there is none but the usual one
    client.sendall(PING)
    assert answer(client) == b"pong"


@pytest.mark.parametrize(
    ("start", "sentence"),
    [
        (PING[:-2], "the header of the request did not arrive within 0 s: send it again"),
        (HALF_A_BODY, "the body of the request did not arrive within 0 s: send it again"),
    ],
    ids=["header", "body"],
)
def test_half_a_request_has_a_deadline(connect: Connect, start: bytes, sentence: str) -> None:
    assert refusal(connect(start)) == (408, {"error": sentence, "error_type": "timeout"})


@pytest.mark.parametrize("start", [PING[:10], HALF_A_BODY[:-5]], ids=["header", "body"])
def test_the_deadline_is_that_of_the_whole_and_not_of_a_byte(connect: Connect, start: bytes) -> None:
    client = connect(start)
    for _ in range(100):
        time.sleep(0.1)
        if select.select([client], [], [], 0)[0]:
            break
        client.sendall(b"x")
    assert client.recv(1000).startswith(b"HTTP/1.1 408")


def test_a_connection_without_a_byte_is_closed_without_one(connect: Connect) -> None:
    assert everything(connect()) == b""


def test_a_second_request_has_a_deadline_too(connect: Connect) -> None:
    client = connect(PING)
    assert answer(client) == b"pong"
    client.sendall(PING[:-2])
    assert refusal(client)[0] == 408


def test_an_answer_may_take_longer_than_any_deadline(connect: Connect) -> None:
    client = slow_answer(connect)
    time.sleep(1)
    GO.set()
    assert answer(client) == b"late"


def test_an_answer_that_nobody_takes_is_thrown_away(connect: Connect) -> None:
    client = connect(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
    time.sleep(1.5)
    assert 0 < len(everything(client)) < LARGE


@pytest.mark.parametrize(
    "request_text",
    [
        b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET",
        b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /ping HTTP/1.1\nHost: a\n\n",
        b"GET /ping HTTP/1.1\r\nHost: a\nX-Other: b\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\n1",
        b"what is this?\r\n\r\n",
    ],
    ids=["two lengths", "chunks in 1.0", "line feeds", "one line feed", "a line feed at the end", "no HTTP"],
)
def test_what_can_be_read_in_two_ways_is_refused_and_the_connection_closed(
    connect: Connect, request_text: bytes
) -> None:
    status, body = refusal(connect(request_text))
    assert (status, body["error_type"]) == (400, "bad_request")
    assert body["error"].endswith("): send it with an HTTP library")


def test_a_refusal_says_what_is_not_http(connect: Connect) -> None:
    two_lengths = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert "Transfer-Encoding next to Content-Length" in refusal(connect(two_lengths))[1]["error"]
    assert "line feed" in refusal(connect(b"GET /ping HTTP/1.1\nHost: a\n\n"))[1]["error"]
    bad_chunk = b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"
    assert "chunk" in refusal(connect(bad_chunk))[1]["error"]


@pytest.mark.parametrize(
    ("start", "path", "status", "kind"),
    [
        (PING[:-2], "other", 408, "timeout"),
        (HALF_A_BODY, "/echo", 408, "timeout"),
        (b"GET /ping HTTP/1.1\r\nHost: a\r\nX-Large: " + b"a" * 100_000, "other", 431, "header_too_large"),
        (b"what is this?\r\n\r\n", "other", 400, "bad_request"),
        (b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "/echo", 400, "bad_request"),
    ],
    ids=["header", "body", "large header", "not HTTP", "chunk"],
)
def test_what_a_connection_refuses_is_counted_and_logged_by_its_status(
    connect: Connect, caplog: pytest.LogCaptureFixture, start: bytes, path: str, status: int, kind: str
) -> None:
    key = ("berth_requests_total", {"path": path, "status": str(status)})
    before = METRICS.value(*key)
    with caplog.at_level(logging.INFO, "berth.serve.access_log"):
        assert refusal(connect(start))[0] == status
        deadline = time.monotonic() + 20
        while not any(f" {status} {kind}" in record.getMessage() for record in caplog.records):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert METRICS.value(*key) == before + 1
    assert METRICS.value("berth_requests_total", {"path": path, "status": "499"}) == 0


@pytest.mark.parametrize(
    "request_text",
    [
        b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na\nb\r\n0\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na\nb",
    ],
    ids=["chunks", "length"],
)
def test_a_body_may_hold_what_a_header_may_not(connect: Connect, request_text: bytes) -> None:
    assert answer(connect(request_text)) == b"a\nb"


def test_a_header_that_is_too_large(connect: Connect) -> None:
    large = b"GET /ping HTTP/1.1\r\nHost: a\r\nX-Large: " + b"a" * 100_000 + b"\r\n\r\n"
    assert refusal(connect(large)) == (431, {"error": LARGE_HEADER, "error_type": "header_too_large"})
    assert answer(connect(PING.replace(b"Host: a", b"Host: a\r\nX-Large: " + b"a" * 60_000))) == b"pong"


def test_requests_one_behind_the_other_are_answered_in_order(connect: Connect) -> None:
    last = PING.replace(b"Host: a", b"Host: a\r\nConnection: close")
    said = everything(connect(PING + b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi" + last))
    assert [part.partition(b"\r\n\r\n")[2] for part in said.split(b"HTTP/1.1 200 OK")[1:]] == [b"pong", b"hi", b"pong"]


def test_http_1_0_is_answered_and_closed(connect: Connect) -> None:
    head, _, body = everything(connect(b"POST /echo HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi")).partition(b"\r\n\r\n")
    assert (head.split()[1], body) == (b"200", b"hi")


def test_the_connection_that_has_waited_longest_gives_way(connect: Connect) -> None:
    with listening(Fast()) as few:
        busy = slow_answer(few)
        idle = few(PING)
        assert answer(idle) == b"pong"
        silent, half = few(), few(HALF_A_BODY)
        for gone in (idle, silent, half):
            assert answer(few(PING)) == b"pong"
            assert everything(gone) == b""
        GO.set()
        assert answer(busy) == b"late"


def test_where_all_wait_for_an_answer_a_new_connection_is_refused(connect: Connect) -> None:
    with listening(Fast()) as few:
        busy = [slow_answer(few) for _ in range(4)]
        assert everything(few()) == b""
        GO.set()
        for client in busy:
            assert answer(client) == b"late"
