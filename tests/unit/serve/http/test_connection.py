"""Connections over real sockets: how long the server waits for a client, and how many connections it keeps open."""

import asyncio
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from berth.serve.http.connection import Connections

PING = b"GET /ping HTTP/1.1\r\nHost: a\r\n\r\n"
HALF_A_BODY = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n12345"
LARGE = 30_000_000


async def ping(_request: Request) -> Response:
    return Response(b"pong")


async def echo(request: Request) -> Response:
    try:
        return Response(await request.body())
    except ClientDisconnect:
        return Response(status_code=499)


STARTED, MAY_ANSWER = threading.Semaphore(0), threading.Event()


async def slow(_request: Request) -> Response:
    """Releases STARTED when it starts, and answers once MAY_ANSWER is set."""
    STARTED.release()
    while not MAY_ANSWER.is_set():
        await asyncio.sleep(0.01)
    return Response(b"late")


async def large(_request: Request) -> Response:
    return Response(b"x" * LARGE)


Connect = Callable[..., socket.socket]


@contextmanager
def listening(most: int, seconds: float) -> Iterator[Connect]:
    """Start a server with these limits; yields a function that connects and sends `start`."""
    routes = [
        Route("/ping", ping),
        Route("/echo", echo, methods=["POST"]),
        Route("/slow", slow),
        Route("/large", large),
    ]
    connections = Connections(Starlette(routes=routes), most, seconds)
    options: Any = {"http": connections.connect, "ws": "none", "lifespan": "off", "log_config": None}
    server = uvicorn.Server(uvicorn.Config(connections, access_log=False, timeout_keep_alive=75, **options))
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
    with listening(100, 0.5) as connecting:
        yield connecting


def read_all(client: socket.socket) -> bytes:
    """All bytes until the server closes the connection."""
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
    """A connection whose request is in progress until MAY_ANSWER is set."""
    MAY_ANSWER.clear()
    client = connect(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
    assert STARTED.acquire(timeout=20)
    return client


def test_second_request_on_a_connection_is_answered() -> None:
    with listening(100, 20) as connect:
        client = connect(PING)
        assert answer(client) == b"pong"
        client.sendall(PING)
        assert answer(client) == b"pong"


@pytest.mark.slow
@pytest.mark.parametrize("start", [b"", PING[:-2], HALF_A_BODY], ids=["nothing", "header", "body"])
def test_connection_without_a_whole_request_is_closed(connect: Connect, start: bytes) -> None:
    assert read_all(connect(start)) == b""


@pytest.mark.slow
@pytest.mark.parametrize("start", [PING[:10], HALF_A_BODY[:-5]], ids=["header", "body"])
def test_slow_bytes_do_not_extend_the_deadline(connect: Connect, start: bytes) -> None:
    client = connect(start)
    for _ in range(100):
        time.sleep(0.1)
        if select.select([client], [], [], 0)[0]:
            break
        client.sendall(b"x")
    assert read_all(client) == b""


def test_second_request_on_a_connection_has_a_deadline(connect: Connect) -> None:
    client = connect(PING)
    assert answer(client) == b"pong"
    client.sendall(PING[:-2])
    assert read_all(client) == b""


@pytest.mark.slow
def test_connection_stays_open_while_its_answer_is_computed(connect: Connect) -> None:
    client = slow_answer(connect)
    time.sleep(1)
    MAY_ANSWER.set()
    assert answer(client) == b"late"


@pytest.mark.slow
def test_connection_is_closed_if_the_client_does_not_read(connect: Connect) -> None:
    client = connect(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
    time.sleep(1.5)
    assert 0 < len(read_all(client)) < LARGE


def test_pipelined_requests_are_answered_in_order(connect: Connect) -> None:
    last = PING.replace(b"Host: a", b"Host: a\r\nConnection: close")
    text = read_all(connect(PING + b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi" + last))
    assert [part.partition(b"\r\n\r\n")[2] for part in text.split(b"HTTP/1.1 200 OK")] == [
        b"",
        b"pong",
        b"hi",
        b"pong",
    ]


def test_http_1_0_request_is_answered_and_closed(connect: Connect) -> None:
    head, _, body = read_all(connect(b"POST /echo HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi")).partition(b"\r\n\r\n")
    assert (head.split()[1], body) == (b"200", b"hi")


def test_longest_waiting_connection_is_closed_for_a_new_one() -> None:
    with listening(4, 20) as few:
        busy = slow_answer(few)
        idle = few(PING)
        assert answer(idle) == b"pong"
        silent, half = few(), few(HALF_A_BODY)
        for longest_waiting in (idle, silent, half):
            assert answer(few(PING)) == b"pong"
            assert read_all(longest_waiting) == b""
        MAY_ANSWER.set()
        assert answer(busy) == b"late"


def test_new_connection_is_closed_if_all_others_wait_for_answers() -> None:
    with listening(4, 20) as few:
        busy = [slow_answer(few) for _ in range(4)]
        assert read_all(few()) == b""
        MAY_ANSWER.set()
        for client in busy:
            assert answer(client) == b"late"
