"""A peer that sends nonsense, or nothing, is refused or lost with a reason. No thread dies, and no host hangs."""

import contextlib
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from berth.contract.errors import JobError
from berth.train.hosts import rendezvous, wire
from berth.train.hosts.events import Events, Lost, Message
from berth.train.hosts.messages import MAX_LINE_BYTES, decode
from berth.train.hosts.rendezvous import join
from tests.unit.train.hosts.hosts_here import INTRODUCTION, LEADER, WORKER, joined, line, meeting, peer, send

pytestmark = pytest.mark.slow  # each waits for a deadline


@contextlib.contextmanager
def speaking_leader(*lines: bytes) -> Iterator[int]:
    """The port of a leader that answers each hello with these lines, and then sends nothing more."""
    with socket.create_server((LEADER, 0)) as server:
        sockets = []

        def run() -> None:
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = server.accept()
                    sockets.append(sock)
                    sock.recv(65536)
                    send(sock, *lines)

        threading.Thread(target=run, daemon=True).start()
        yield server.getsockname()[1]
        for sock in sockets:
            sock.close()
        server.shutdown(socket.SHUT_RDWR)


NONSENSE = [
    b"hello",
    b"[]",
    b'{"kind": 1}',
    b'{"kind": "hello"}',
    b'{"kind": "x", "a": ' + b"[" * 100_000,
    b"\xff\xfe\x00",
    line("hello").replace(b'"ranks": 1', b'"ranks": Infinity'),
    b"x" * (MAX_LINE_BYTES + 9),
]


@pytest.mark.parametrize("nonsense", NONSENSE, ids=[f"{each[:20]!r}" for each in NONSENSE])
def test_nonsense_instead_of_hello_is_refused(nonsense: bytes) -> None:
    with meeting() as (leader, events), peer(leader) as sock:
        send(sock, nonsense)
        sock.settimeout(5)
        answer = b""
        with contextlib.suppress(ConnectionError):  # unread data resets the connection
            while data := sock.recv(65536):
                answer += data
        if len(nonsense) < 65536:
            assert decode(answer)[0] == "refused"
        assert not leader.introductions
        join(LEADER, INTRODUCTION, SimpleQueue(), 5, leader.port)
        assert events.get(timeout=5) == Message(WORKER, "joined", {})


@pytest.mark.parametrize("nonsense", NONSENSE, ids=[f"{each[:20]!r}" for each in NONSENSE])
def test_nonsense_from_a_worker_loses_it(nonsense: bytes) -> None:
    with joined() as (_, events, sock):
        send(sock, nonsense)
        event = events.get(timeout=5)
        assert event.reason.startswith("a message ")
        sock.settimeout(5)
        with contextlib.suppress(ConnectionError):
            while sock.recv(65536):
                pass
        assert events.empty(), "it is lost once"


@pytest.mark.parametrize("nonsense", NONSENSE[:-1], ids=[f"{each[:20]!r}" for each in NONSENSE[:-1]])
def test_nonsense_from_a_leader_loses_it(nonsense: bytes) -> None:
    with speaking_leader(nonsense) as port:
        with pytest.raises(JobError, match=r"could not reach the leader .* \((a message|the leader refused|\[Errno)"):
            join(LEADER, INTRODUCTION, SimpleQueue(), 0.1, port)
    worker_events: Events = SimpleQueue()
    with speaking_leader(line("joined"), nonsense) as port:
        join(LEADER, INTRODUCTION, worker_events, 5, port)
        event = worker_events.get(timeout=5)
    assert event.reason.startswith("a message ")


def test_exception_in_the_listening_thread_loses_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    with joined() as (_, events, sock):

        def fault(line: bytes) -> Any:
            raise KeyError("x")

        monkeypatch.setattr(wire, "decode", fault)
        send(sock, line("ready"))
        assert events.get(timeout=5) == Lost(WORKER, "KeyError: 'x'; please report it with this log")


def test_worker_is_lost_if_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def full(thread: threading.Thread) -> None:
        if thread.name == f"rendezvous {WORKER}":
            raise RuntimeError("can't start new thread")
        start(thread)

    with meeting() as (leader, events), peer(leader) as sock:
        monkeypatch.setattr(threading.Thread, "start", full)
        send(sock, line("hello"), line("beat"))
        assert events.get(timeout=5) == Message(WORKER, "joined", {})
        assert events.get(timeout=5) == Lost(WORKER, "this host can start no more threads (can't start new thread)")


def drip(sock: socket.socket, seconds: float) -> float:
    """Send a byte of an endless message every 0.2 s; returns the seconds until the other side closed."""
    sock.settimeout(0.2)
    began = time.monotonic()
    with contextlib.suppress(ConnectionError):
        while time.monotonic() - began < seconds:
            sock.send(b" ")
            with contextlib.suppress(TimeoutError):
                while sock.recv(65536):
                    pass
                break
    return time.monotonic() - began


def test_slow_hello_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "GREETING_SECONDS", 1.0)
    with meeting() as (leader, _), peer(leader) as sock:
        assert 0.7 < drip(sock, 15) < 10


def test_unfinished_message_is_no_sign_of_life() -> None:
    with joined(silence=1.0) as (_, events, sock):
        assert 0.7 < drip(sock, 15) < 10
        assert events.get(timeout=5) == Lost(WORKER, "no sign of life for 1 s")


def test_idle_connections_do_not_keep_a_worker_out() -> None:
    with meeting() as (leader, events), contextlib.ExitStack() as stack:
        for _ in range(120):
            send(stack.enter_context(peer(leader)), b" ")
        join(LEADER, INTRODUCTION, SimpleQueue(), 5, leader.port)
        assert events.get(timeout=5) == Message(WORKER, "joined", {})


def test_leader_accepts_again_after_running_out_of_file_descriptors() -> None:
    """accept() really fails: the limit of open files is reached."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    filled: list[int] = []
    with meeting() as (leader, events), socket.socket() as early:
        early.settimeout(5)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (early.fileno() + 32, hard))
            with contextlib.suppress(OSError):
                while True:
                    filled.append(os.dup(early.fileno()))
            early.connect((LEADER, leader.port))
            time.sleep(1)
        finally:
            for descriptor in filled:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        join(LEADER, INTRODUCTION, SimpleQueue(), 5, leader.port)
        assert events.get(timeout=5) == Message(WORKER, "joined", {})


def test_worker_that_reads_nothing_is_lost() -> None:
    with joined(silence=1.0) as (leader, events, sock):
        end = threading.Event()

        def beat() -> None:
            while not end.wait(0.2):
                send(sock, line("beat"))

        threading.Thread(target=beat, daemon=True).start()
        try:
            deadline = time.monotonic() + 20
            while events.empty() and time.monotonic() < deadline:
                leader.broadcast("welcome", host_key="k" * 200_000)
            assert events.get(timeout=5) == Lost(WORKER, "it read nothing for 1 s")
        finally:
            end.set()
