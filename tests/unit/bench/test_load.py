"""The client that measures: connections that stay, answers in order, losses, and a loop that does not wait."""

import itertools
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from bench import soak
from bench.serving import load
from bench.serving.request import ask

BODIES = [b"%d" % number for number in range(30)]
Serve = Callable[[Callable[[BaseHTTPRequestHandler, bytes], None]], Any]


def answer(handler: BaseHTTPRequestHandler, status: int, body: bytes) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def echo(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    answer(handler, 200, b"heard " + body)


def test_a_closed_loop_asks_each_once_on_connections_that_stay(serve: Serve) -> None:
    double = serve(echo)
    found = load.closed_loop(double.port, BODIES, 3)
    assert [reply.body for reply in found.replies] == [b"heard " + body for body in BODIES]
    assert {reply.status for reply in found.replies} == {200}
    assert sorted(double.asked) == sorted(("/invocations", body) for body in BODIES)
    assert double.connections == 3
    assert 0 < sum(reply.seconds for reply in found.replies) / 3 <= found.seconds
    assert found.cpu_seconds > 0


@pytest.mark.parametrize("at_once", [1, 4])
def test_a_closed_loop_has_so_many_in_flight_and_no_more(serve: Serve, at_once: int) -> None:
    lock = threading.Lock()
    flying, most = 0, 0

    def slow(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        nonlocal flying, most
        with lock:
            flying += 1
            most = max(most, flying)
        time.sleep(0.05)
        with lock:
            flying -= 1
        echo(handler, body)

    load.closed_loop(serve(slow).port, BODIES[:12], at_once)
    assert most == at_once


def test_an_open_loop_does_not_wait_for_answers(serve: Serve) -> None:
    def slow(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        time.sleep(0.5)
        echo(handler, body)

    due = [0.01 * number for number in range(20)]
    found, pings = load.open_loop(serve(slow).port, BODIES[:3], due, [0.0, 0.1])
    assert found.seconds < 5, "one after the other they take 10 s"
    assert [reply.due for reply in found.replies] == due
    bodies = itertools.cycle(b"heard " + body for body in BODIES[:3])
    assert [reply.body for reply in found.replies] == list(itertools.islice(bodies, 20))
    assert all(0.5 <= reply.seconds <= found.seconds for reply in found.replies)
    assert [reply.status for reply in pings.replies] == [200, 200]


def test_times_count_from_when_a_request_was_due(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is late, as one on a busy core, must not make a server look fast."""
    asked = load._Client.ask

    async def late(self: Any, message: bytes, due: float) -> load.Reply:
        time.sleep(0.2)
        return await asked(self, message, due)

    monkeypatch.setattr(load._Client, "ask", late)
    found, _ = load.open_loop(serve(echo).port, BODIES, [0.0], [])
    assert found.replies[0].late >= 0.2
    assert found.replies[0].seconds >= found.replies[0].late


def test_an_answer_in_chunks_is_read(serve: Serve) -> None:
    def chunked(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write(b"5\r\nheard\r\nb;some=thing\r\n and obeyed\r\n0\r\n\r\n")

    double = serve(chunked)
    found = load.closed_loop(double.port, BODIES[:2], 1)
    assert [reply.body for reply in found.replies] == [b"heard and obeyed"] * 2
    assert double.connections == 1


def test_a_connection_that_the_server_closes_is_made_again(serve: Serve) -> None:
    def closing(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        handler.send_response(503)
        handler.send_header("Connection", "close")
        handler.send_header("Content-Length", "4")
        handler.end_headers()
        handler.wfile.write(b"full")
        handler.close_connection = True

    double = serve(closing)
    found = load.closed_loop(double.port, BODIES[:3], 1)
    assert [(reply.status, reply.body, reply.lost) for reply in found.replies] == [(503, b"full", "")] * 3
    assert double.connections == 3


def breaks(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.close_connection = True


def breaks_within(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b"half")
    handler.close_connection = True


def without_a_length(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.send_response(200)
    handler.end_headers()
    handler.close_connection = True


def no_http(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.wfile.write(b"hello\r\n\r\n")
    handler.close_connection = True


@pytest.mark.parametrize("behave", [breaks, breaks_within, without_a_length, no_http])
def test_what_is_no_whole_answer_is_lost(serve: Serve, behave: Any) -> None:
    found = load.closed_loop(serve(behave).port, BODIES[:2], 1)
    assert [reply.status for reply in found.replies] == [load.LOST] * 2
    assert all(reply.lost for reply in found.replies)


def test_a_server_that_is_gone_or_mute_loses_requests(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "ANSWER_WITHIN", 0.3)
    mute = serve(lambda handler, body: time.sleep(1))
    assert load.closed_loop(mute.port, BODIES[:1], 1).replies[0].lost == "no answer within 0 s"
    gone = serve(echo)
    gone.shutdown()
    gone.server_close()
    assert "ConnectionRefusedError" in load.closed_loop(gone.port, BODIES[:1], 1).replies[0].lost


def test_arrivals_are_independent_and_of_the_rate() -> None:
    due = load.arrivals(50, 100, seed=1)
    assert due == load.arrivals(50, 100, seed=1) != load.arrivals(50, 100, seed=2)
    assert due == sorted(due)
    assert 0 < due[0] < due[-1] < 100
    assert len(due) == pytest.approx(5000, abs=300)
    gaps = [later - earlier for earlier, later in itertools.pairwise(due)]
    assert sum(gap < 0.02 for gap in gaps) / len(gaps) == pytest.approx(0.63, abs=0.05), "1 - 1/e: no even intervals"


def test_an_overload_counts_what_was_refused_and_pings_meanwhile(serve: Serve) -> None:
    turn = itertools.count()

    def half(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.path == "/ping":
            answer(handler, 200, b"{}")
        else:
            answer(handler, (200, 503)[next(turn) % 2], b"{}")

    found = soak.overload(serve(half).port, BODIES, rate=60, seconds=1)
    assert found.sent == len(load.arrivals(60, 1, soak.SEED))
    assert found.answered + found.refused == found.sent
    assert found.answered - found.refused in (0, 1)
    assert (found.timed_out, found.lost, found.others) == (0, 0, 0)
    assert (found.pings, found.pings_failed) == (4, 0)


def test_one_request_has_its_status_and_text_or_the_reason(serve: Serve) -> None:
    double = serve(echo)
    assert ask(double.port, "POST", "/models", b"one") == (200, "heard one")
    assert double.asked == [("/models", b"one")]
    assert ask(serve(breaks).port, "GET", "/ping") == (
        load.LOST,
        "RemoteDisconnected: Remote end closed connection without response",
    )
