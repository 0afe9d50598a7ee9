"""A name that resolves slowly is waited for, on both sides, and signals are heard meanwhile."""

import socket
import threading
import time
from queue import SimpleQueue
from typing import Any

import pytest

from berth.train.hosts import rendezvous
from berth.train.hosts.events import Events, Message, Signalled
from berth.train.hosts.rendezvous import Stopped, join
from tests.unit.train.hosts.hosts_here import LEADER, MINE, WORKER, line, meeting, peer, send

pytestmark = pytest.mark.slow  # each waits for a deadline


@pytest.fixture
def short_greetings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A greeting's message may take 1.5 s, so that a resolver of 3 s is what one of 20 s is otherwise."""
    monkeypatch.setattr(rendezvous, "GREETING_SECONDS", 1.5)
    monkeypatch.setattr(rendezvous, "HEARTBEAT_SECONDS", 0.2)


def slowly(host: str) -> set[str]:
    time.sleep(3)
    return {LEADER}


@pytest.mark.usefixtures("short_greetings")
@pytest.mark.slow
def test_a_name_that_the_leader_looks_up_slowly_is_waited_for() -> None:
    with meeting(resolve=slowly) as (leader, events):
        connection = join(LEADER, MINE, SimpleQueue(), 30, leader.port)
        leader.gather(10)
        connection.send("ready")
        said = [events.get(timeout=5)]
        if said[-1] == Message(WORKER, "joined", {}):  # `gather` may have seen the host before its event
            said.append(events.get(timeout=5))
        assert said[-1] == Message(WORKER, "ready", {})


@pytest.mark.usefixtures("short_greetings")
@pytest.mark.slow
def test_a_worker_that_hung_up_while_its_name_was_looked_up_is_not_lost() -> None:
    with meeting(resolve=slowly) as (leader, events):
        with peer(leader) as sock:
            send(sock, line("hello"))
        with peer(leader) as silent:
            send(silent, line("hello"))  # and answers nothing more, as a host that the network has lost
            join(LEADER, MINE, SimpleQueue(), 30, leader.port)
            assert events.get(timeout=5) == Message(WORKER, "joined", {})
            time.sleep(2)
        assert events.empty()


@pytest.mark.usefixtures("short_greetings")
def test_a_signal_is_heard_while_the_leader_looks_a_name_up() -> None:
    own: Events = SimpleQueue()
    with meeting(resolve=slowly) as (leader, _):
        threading.Timer(0.5, lambda: own.put(Signalled(15))).start()
        began = time.monotonic()
        with pytest.raises(Stopped):
            join(LEADER, MINE, own, 30, leader.port)
        assert time.monotonic() - began < 3


@pytest.mark.slow
def test_a_leaders_name_that_resolves_slowly_is_waited_for_and_a_signal_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = socket.getaddrinfo

    def slow(host: Any, *arguments: Any, **options: Any) -> Any:
        time.sleep(3)
        return ask(host, *arguments, **options)

    with meeting() as (leader, _):
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        join(LEADER, MINE, SimpleQueue(), 5, leader.port)
        own: Events = SimpleQueue()
        threading.Timer(0.3, lambda: own.put(Signalled(15))).start()
        began = time.monotonic()
        with pytest.raises(Stopped):
            join(LEADER, MINE, own, 30, leader.port)
        assert time.monotonic() - began < 2.5
