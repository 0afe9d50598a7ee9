"""Both sides wait for a name that resolves slowly, and handle signals meanwhile."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from berth.train.hosts import rendezvous
from berth.train.hosts.events import Events, Message, Signalled
from berth.train.hosts.rendezvous import Stopped, join
from tests.unit.train.hosts.hosts_here import (
    INTRODUCTION,
    LEADER,
    WORKER,
    line,
    meeting,
    peer,
    resolve_to_loopback,
    send,
)

pytestmark = pytest.mark.slow  # each waits for a deadline


@pytest.fixture
def short_greetings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message of the greeting may take 1 s (10 s in a job), but `resolve_slowly` takes 2 s."""
    monkeypatch.setattr(rendezvous, "GREETING_SECONDS", 1.0)
    monkeypatch.setattr(rendezvous, "HEARTBEAT_SECONDS", 0.2)


def resolve_slowly(host: str) -> set[str]:
    time.sleep(2)
    return {LEADER}


@pytest.mark.usefixtures("short_greetings")
def test_leader_waits_for_slow_lookup_of_worker() -> None:
    with meeting(resolve=resolve_slowly) as (leader, events):
        connection = join(LEADER, INTRODUCTION, SimpleQueue(), 30, leader.port)
        leader.gather(10)
        connection.send("ready")
        event = events.get(timeout=5)
        if event == Message(WORKER, "joined", {}):  # `gather` may have returned before this event came
            event = events.get(timeout=5)
        assert event == Message(WORKER, "ready", {})


@pytest.mark.usefixtures("short_greetings")
def test_worker_that_closes_during_slow_lookup_is_not_lost() -> None:
    with meeting(resolve=resolve_slowly) as (leader, events):
        with peer(leader) as sock:
            send(sock, line("hello"))
        with peer(leader) as silent:
            send(silent, line("hello"))  # and nothing more, like a host that was disconnected
            join(LEADER, INTRODUCTION, SimpleQueue(), 30, leader.port)
            assert events.get(timeout=5) == Message(WORKER, "joined", {})
            time.sleep(1.2)
        assert events.empty()


@contextlib.contextmanager
def stop_during_lookup(lookup: Callable[..., Any]) -> Iterator[tuple[Events, Callable[..., Any]]]:
    """A worker's events and a lookup that first sends it a signal, and then waits for the end of the block."""
    events: Events = SimpleQueue()
    ended, waited = threading.Event(), SimpleQueue[bool]()

    def slow(*arguments: Any, **options: Any) -> Any:
        events.put(Signalled(15))
        waited.put(ended.wait(30))
        return lookup(*arguments, **options)

    yield events, slow
    ended.set()
    assert waited.get(timeout=10), "the block waited for the lookup"


def test_worker_stops_while_the_leader_resolves_its_name() -> None:
    with stop_during_lookup(resolve_to_loopback) as (worker_events, resolve), meeting(resolve=resolve) as (leader, _):
        with pytest.raises(Stopped):
            join(LEADER, INTRODUCTION, worker_events, 60, leader.port)


def test_worker_waits_for_slow_lookup_of_leader_and_handles_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    getaddrinfo = socket.getaddrinfo

    def slow(*arguments: Any, **options: Any) -> Any:
        time.sleep(2)
        return getaddrinfo(*arguments, **options)

    with meeting() as (leader, _):
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        join(LEADER, INTRODUCTION, SimpleQueue(), 5, leader.port)
        with stop_during_lookup(getaddrinfo) as (worker_events, held):
            monkeypatch.setattr(socket, "getaddrinfo", held)
            with pytest.raises(Stopped):
                join(LEADER, INTRODUCTION, worker_events, 60, leader.port)
