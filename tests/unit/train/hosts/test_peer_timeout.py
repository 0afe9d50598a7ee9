"""A host that is silent for a while, is lost, or exits: a real process that signals stop and continue."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from queue import Empty, SimpleQueue

import pytest

from berth.train.hosts import wire
from berth.train.hosts.events import Events, Lost, Message
from berth.train.hosts.rendezvous import Leader, join
from tests.unit.train.hosts.hosts_here import INTRODUCTION, LEADER, WORKER, meeting

SILENCE = 2.0
JOINS = """
import sys, threading
from queue import SimpleQueue
from berth.train.hosts import wire
from berth.train.hosts.rendezvous import Introduction, join
wire.HEARTBEAT_SECONDS = 0.1
join("127.0.0.1", Introduction("localhost", 1), SimpleQueue(), 5, int(sys.argv[1]))
threading.Event().wait()
"""


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Leader, Events, subprocess.Popen[bytes]]]:
    monkeypatch.setattr(wire, "HEARTBEAT_SECONDS", 0.1)
    with meeting(silence=SILENCE) as (leader, events):
        with subprocess.Popen([sys.executable, "-P", "-c", JOINS, str(leader.port)]) as process:
            try:
                assert events.get(timeout=20) == Message(WORKER, "joined", {})
                yield leader, events, process
            finally:
                process.kill()


@pytest.mark.slow
def test_host_is_lost_after_the_time_out_but_not_before(peer: tuple[Leader, Events, subprocess.Popen[bytes]]) -> None:
    _, events, process = peer
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(Empty):
        events.get(timeout=SILENCE / 2)
    process.send_signal(signal.SIGCONT)
    with pytest.raises(Empty):
        events.get(timeout=SILENCE * 3 / 4)
    process.send_signal(signal.SIGSTOP)
    assert events.get(timeout=10) == Lost(WORKER, "no sign of life for 2 s")


def test_host_that_exits_is_lost_at_once(peer: tuple[Leader, Events, subprocess.Popen[bytes]]) -> None:
    _, events, process = peer
    process.kill()
    began = time.monotonic()
    assert isinstance(events.get(timeout=10), Lost)
    assert time.monotonic() - began < SILENCE / 2


def test_leaders_time_out_applies_to_its_workers() -> None:
    with meeting(silence=7.0) as (leader, events):
        connection = join(LEADER, INTRODUCTION, SimpleQueue(), 5, leader.port)
        assert events.get(timeout=5) == Message(WORKER, "joined", {})
        assert connection.silence == leader.connections[WORKER].silence == 7.0
