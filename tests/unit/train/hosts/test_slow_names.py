"""Both sides wait for a name that resolves slowly, and handle signals meanwhile."""

import socket
import threading
import time
from queue import SimpleQueue
from typing import Any

import pytest

from berth.train.hosts import rendezvous
from berth.train.hosts.events import Events, Message, Signalled
from berth.train.hosts.rendezvous import Stopped, join
from tests.unit.train.hosts.hosts_here import INTRODUCTION, LEADER, WORKER, line, meeting, peer, send

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


@pytest.mark.usefixtures("short_greetings")
def test_worker_stops_while_the_leader_resolves_its_name() -> None:
    worker_events: Events = SimpleQueue()
    with meeting(resolve=resolve_slowly) as (leader, _):
        threading.Timer(0.5, lambda: worker_events.put(Signalled(15))).start()
        began = time.monotonic()
        with pytest.raises(Stopped):
            join(LEADER, INTRODUCTION, worker_events, 30, leader.port)
        assert time.monotonic() - began < 1.9


def test_worker_waits_for_slow_lookup_of_leader_and_handles_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    getaddrinfo = socket.getaddrinfo

    def slow(host: Any, *arguments: Any, **options: Any) -> Any:
        time.sleep(2)
        return getaddrinfo(host, *arguments, **options)

    with meeting() as (leader, _):
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        join(LEADER, INTRODUCTION, SimpleQueue(), 5, leader.port)
        worker_events: Events = SimpleQueue()
        threading.Timer(0.3, lambda: worker_events.put(Signalled(15))).start()
        began = time.monotonic()
        with pytest.raises(Stopped):
            join(LEADER, INTRODUCTION, worker_events, 30, leader.port)
        assert time.monotonic() - began < 1.8
