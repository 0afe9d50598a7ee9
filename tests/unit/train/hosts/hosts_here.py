"""Two hosts of a job on this machine, for the tests of the rendezvous and the session: real sockets on the loopback.

A host is the kit's own (`FakeHost`, whose program is a few lines of the test), or the test speaks for it (`joined`,
`peer`).
"""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from berth.train.failures.failure import FailureReport
from berth.train.hosts.events import Events, Exited, HostPrepared, Message
from berth.train.hosts.messages import encode
from berth.train.hosts.outcome import Outcome, outcome_fields
from berth.train.hosts.rendezvous import Introduction, Leader

LEADER, WORKER = "127.0.0.1", "localhost"
MINE = Introduction(WORKER, 1, "key")

REPORT = FailureReport("no rows", 3, WORKER, 1, ("a", "b"), when=100.0)
MESSAGES: dict[str, dict[str, Any]] = {
    "hello": {
        "host": WORKER,
        "ranks": 1,
        "host_key": "k",
        "client_key": "c",
        "ssh_port": 22,
        "version": "1",
        "backend": "gloo",
    },
    "joined": {"silence": 60.0},
    "refused": {"reason": "why"},
    "beat": {},
    "welcome": {"host_key": "k", "client_key": "c", "master_port": 7777},
    "ready": {},
    "stop": {"number": 15, "count": 1},
    "done": outcome_fields(Outcome(3, REPORT), now=101.0),
    "ended": {},
    "outcome": outcome_fields(Outcome(3, REPORT), now=101.0),
    "bye": {},
}


def here(host: str) -> set[str]:
    """The addresses of a host: every name is this machine's."""
    return {LEADER}


@contextlib.contextmanager
def meeting(
    workers: tuple[str, ...] = (WORKER,), resolve: Callable[[str], set[str]] = here, silence: float = 10.0
) -> Iterator[tuple[Leader, Events]]:
    """A leader that listens on a free port, and its events."""
    events: Events = SimpleQueue()
    leader = Leader(LEADER, workers, events, port=0, silence=silence, resolve=resolve)
    try:
        yield leader, events
    finally:
        leader.close()


class FakeHost:
    """A host whose program is a few lines of the test. It records what the loops did to it."""

    def __init__(
        self,
        name: str,
        events: Events,
        code: int | None = 0,
        reports: tuple[FailureReport, ...] = (),
        programs_after: int = 0,
        ends_after: int = 1,
    ) -> None:
        self.events, self.code = events, code
        self.programs_after = programs_after  # signals that find no program yet
        self.ends_after = ends_after  # signals that the program needs
        self.stopped = 0
        self.model = True
        self.finished: list[Outcome] = []
        self.signals: list[int] = []
        self.had = 0  # signals that the program has had
        self.error: str | None = None
        self.started = threading.Event()
        self.signalled = threading.Event()
        self.name, self._reports = name, reports
        self.local_run = self  # the loops call both a Host and its LocalRun
        self.output = ["-----", "it said this"]

    def prepare(self) -> None:
        self.events.put(HostPrepared(self.error))

    def start(self) -> None:
        self.started.set()
        if self.code is not None:
            self.events.put(Exited(self.code))

    def stop(self) -> None:
        self.stopped += 1

    def signal_programs(self, number: int, count: int) -> None:
        if self.had >= count:
            return
        self.signals.append(number)
        self.signalled.set()
        if len(self.signals) > self.programs_after:
            self.had += 1
            if self.had >= self.ends_after:
                self.events.put(Exited(-number))

    def reports(self) -> list[FailureReport]:
        return list(self._reports)

    def leaves_model(self) -> bool:
        return self.model

    def finish(self, outcome: Outcome) -> None:
        self.finished.append(outcome)

    def admit(self, leader: Leader) -> dict[str, Any]:
        return MESSAGES["welcome"]

    def accept(self, welcome: Mapping[str, Any], address: str) -> None:
        pass


def timeless(outcome: Outcome) -> Outcome:
    """Without the time of its report, which each host tells by its own clock."""
    return replace(outcome, report=outcome.report and replace(outcome.report, when=0.0))


def send(sock: socket.socket, *lines: bytes) -> None:
    with contextlib.suppress(OSError):
        sock.sendall(b"".join(line + b"\n" for line in lines))


def line(kind: str) -> bytes:
    return encode(kind, MESSAGES[kind]).rstrip()


@contextlib.contextmanager
def peer(leader: Leader) -> Iterator[socket.socket]:
    with socket.create_connection((LEADER, leader.port), timeout=5) as sock:
        yield sock


@contextlib.contextmanager
def joined(silence: float = 10.0) -> Iterator[tuple[Leader, Events, socket.socket]]:
    """A leader, and a worker of which the test is the voice."""
    with meeting(silence=silence) as (leader, events), peer(leader) as sock:
        send(sock, line("hello"), line("beat"))
        assert events.get(timeout=5) == Message(WORKER, "joined", {})
        yield leader, events, sock
