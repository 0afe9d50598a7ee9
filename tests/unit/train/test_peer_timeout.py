"""A host that falls silent, is heard from again, is lost or hangs up: a real process, stopped by signals."""

import re
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
from tests.unit.train.hosts_here import LEADER, MINE, WORKER, meeting

SILENCE = 3.0
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


def await_log(capfd: pytest.CaptureFixture[str], words: str, seconds: float = 10.0) -> str:
    """What was logged up to the line with these words."""
    text, deadline = "", time.monotonic() + seconds
    while words not in text:
        assert time.monotonic() < deadline, text
        time.sleep(0.05)
        text += capfd.readouterr().out
    return text


@pytest.mark.slow
def test_silence_is_warned_of_at_half_of_the_time_and_then_ends_the_job(
    peer: tuple[Leader, Events, subprocess.Popen[bytes]], capfd: pytest.CaptureFixture[str]
) -> None:
    _, events, process = peer
    process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    warned = await_log(capfd, "the job ends", seconds=SILENCE)
    assert re.search(
        r"warning: no sign of life from host localhost for [12] s; after 3 s \(BERTH_PEER_TIMEOUT\)", warned
    )
    process.send_signal(signal.SIGCONT)
    await_log(capfd, "rendezvous: host localhost is heard from again, after ")
    with pytest.raises(Empty):
        events.get_nowait()
    process.send_signal(signal.SIGSTOP)
    assert events.get(timeout=10) == Lost(WORKER, "no sign of life for 3 s")
    assert time.monotonic() - began > SILENCE
    text = await_log(capfd, "no sign of life from host localhost")
    # The other host, which writes to the same log, does not complain of this one after it has stood still itself.
    assert text.count("warning: ") == 1


def test_a_host_that_is_gone_is_noticed_at_once(peer: tuple[Leader, Events, subprocess.Popen[bytes]]) -> None:
    _, events, process = peer
    process.kill()
    began = time.monotonic()
    assert isinstance(events.get(timeout=10), Lost)
    assert time.monotonic() - began < SILENCE / 2


def test_the_leaders_time_counts_for_its_workers() -> None:
    with meeting(silence=7.0) as (leader, events):
        connection = join(LEADER, MINE, SimpleQueue(), 5, leader.port)
        assert events.get(timeout=5) == Message(WORKER, "joined", {})
        assert connection.silence == leader.connections[WORKER].silence == 7.0
