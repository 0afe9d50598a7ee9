"""The measuring HTTP client: persistent connections, order of answers, lost requests, and a loop that does not wait."""

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from bench.serving import load
from tests.doubles.http_server import QuietHandler

BODIES = [b"%d" % number for number in range(30)]
Serve = Callable[[Callable[[QuietHandler, bytes], None]], Any]


def echo(handler: QuietHandler, body: bytes) -> None:
    handler.answer(200, b"heard " + body)


def test_closed_loop_sends_each_body_once_on_persistent_connections(serve: Serve) -> None:
    server = serve(echo)
    measured = load.closed_loop(server.port, BODIES, 3)
    assert [reply.body for reply in measured.replies] == [b"heard " + body for body in BODIES]
    assert {reply.status for reply in measured.replies} == {200}
    assert sorted(server.requests) == sorted(("/invocations", body) for body in BODIES)
    assert server.connections == 3
    assert 0 < sum(reply.seconds for reply in measured.replies) / 3 <= measured.seconds
    assert measured.cpu_seconds > 0


@pytest.mark.parametrize("at_once", [1, 4])
def test_closed_loop_keeps_concurrency(serve: Serve, at_once: int) -> None:
    lock = threading.Lock()
    together = threading.Barrier(at_once)
    in_flight, most = 0, 0

    def wait_for_others(handler: QuietHandler, body: bytes) -> None:
        nonlocal in_flight, most
        with lock:
            in_flight += 1
            most = max(most, in_flight)
        together.wait(30)
        with lock:
            in_flight -= 1
        echo(handler, body)

    load.closed_loop(serve(wait_for_others).port, BODIES[:12], at_once)
    assert most == at_once


def test_open_loop_does_not_wait_for_answers(serve: Serve) -> None:
    all_sent = threading.Barrier(22)  # 20 requests and two pings

    def wait_for_others(handler: QuietHandler, body: bytes) -> None:
        all_sent.wait(30)
        echo(handler, body)

    due = [0.01 * number for number in range(20)]
    measured, pings = load.open_loop(serve(wait_for_others).port, BODIES[:3], due, [0.0, 0.1])
    assert [reply.due for reply in measured.replies] == due
    bodies = itertools.cycle(b"heard " + body for body in BODIES[:3])
    assert [reply.body for reply in measured.replies] == list(itertools.islice(bodies, 20))
    assert all(0 < reply.seconds <= measured.seconds for reply in measured.replies)
    assert [reply.status for reply in pings.replies] == [200, 200]


def test_times_count_from_the_due_time(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A delay of the client, for example on a busy core, must not make the server look faster."""
    original = load._Client.ask

    async def late(self: Any, message: bytes, due: float) -> load.Reply:
        time.sleep(0.2)
        return await original(self, message, due)

    monkeypatch.setattr(load._Client, "ask", late)
    measured, _ = load.open_loop(serve(echo).port, BODIES, [0.0], [])
    assert measured.replies[0].late >= 0.2
    assert measured.replies[0].seconds >= measured.replies[0].late


def raw(data: bytes, *, close: bool = False) -> Callable[[QuietHandler, bytes], None]:
    """A server that sends these bytes for every request; close: it then closes the connection."""

    def behave(handler: QuietHandler, body: bytes) -> None:
        handler.wfile.write(data)
        handler.close_connection = close

    return behave


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nheard\r\nb;some=thing\r\n and obeyed\r\n0\r\n\r\n"
CLOSING = b"HTTP/1.1 503 Full\r\nConnection: close\r\nContent-Length: 4\r\n\r\nfull"


@pytest.mark.parametrize(
    ("behave", "answer", "connections"),
    [
        pytest.param(raw(CHUNKED), (200, b"heard and obeyed", ""), 1, id="chunked"),
        pytest.param(raw(CLOSING, close=True), (503, b"full", ""), 3, id="closed-connection-is-replaced"),
    ],
)
def test_answer_of_every_form_is_read(serve: Serve, behave: Any, answer: object, connections: int) -> None:
    server = serve(behave)
    measured = load.closed_loop(server.port, BODIES[:3], 1)
    assert [(reply.status, reply.body, reply.lost) for reply in measured.replies] == [answer] * 3
    assert server.connections == connections


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", id="cut-short"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", id="without-length"),
        pytest.param(b"hello\r\n\r\n", id="no-http"),
    ],
)
def test_incomplete_answer_is_lost(serve: Serve, data: bytes) -> None:
    measured = load.closed_loop(serve(raw(data, close=True)).port, BODIES[:2], 1)
    assert [reply.status for reply in measured.replies] == [load.LOST] * 2
    assert all(reply.lost for reply in measured.replies)


def test_request_is_lost_if_server_is_silent_or_stopped(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "ANSWER_WITHIN", 0.3)
    answered = threading.Event()
    silent = serve(lambda handler, body: answered.wait(30) and None)
    assert load.closed_loop(silent.port, BODIES[:1], 1).replies[0].lost == "no answer within 0 s"
    answered.set()
    stopped = serve(echo)
    stopped.shutdown()
    stopped.server_close()
    assert "ConnectionRefusedError" in load.closed_loop(stopped.port, BODIES[:1], 1).replies[0].lost


def test_arrivals_are_a_poisson_process() -> None:
    due = load.arrivals(50, 100, seed=1)
    assert due == load.arrivals(50, 100, seed=1) != load.arrivals(50, 100, seed=2)
    assert due == sorted(due)
    assert 0 < due[0] < due[-1] < 100
    assert len(due) == pytest.approx(5000, abs=300)
    gaps = [later - earlier for earlier, later in itertools.pairwise(due)]
    assert sum(gap < 0.02 for gap in gaps) / len(gaps) == pytest.approx(0.63, abs=0.05), (
        "1 - 1/e of the intervals are shorter than the mean"
    )
