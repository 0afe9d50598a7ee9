"""Two hosts of a job on this machine, for the tests of the rendezvous and the session: real sockets on the loopback.

A host is a `FakeHost` in berth's own loops, or the test sends and reads its messages itself (`joined`, `peer`).
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
INTRODUCTION = Introduction(WORKER, 1, "key")

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


def resolve_to_loopback(host: str) -> set[str]:
    """The addresses of a host: every name resolves to this machine."""
    return {LEADER}


@contextlib.contextmanager
def meeting(
    workers: tuple[str, ...] = (WORKER,),
    resolve: Callable[[str], set[str]] = resolve_to_loopback,
    silence: float = 10.0,
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
        model: bool = True,
        error: str | None = None,
    ) -> None:
        """code: exit code of the program, None if it runs until it is signalled. programs_after: number of signals that
        come before the program runs. ends_after: number of signals after which it ends. error: why preparing fails.
        """
        self.events, self.code = events, code
        self.programs_after, self.ends_after = programs_after, ends_after
        self.model, self.error = model, error
        self.stopped = 0
        self.finished: list[Outcome] = []
        self.signals: list[int] = []
        self.received = 0  # number of signals that the program got
        self.started = threading.Event()
        self.signalled = threading.Event()
        self.name, self._reports = name, reports
        self.local_run = self  # the loops call both a Host and its LocalRun
        self.output = ["-----", "an error"]

    def prepare(self) -> None:
        self.events.put(HostPrepared(self.error))

    def start(self) -> None:
        self.started.set()
        if self.code is not None:
            self.events.put(Exited(self.code))

    def stop(self) -> None:
        self.stopped += 1

    def signal_programs(self, number: int, count: int) -> None:
        if self.received >= count:
            return
        self.signals.append(number)
        self.signalled.set()
        if len(self.signals) > self.programs_after:
            self.received += 1
            if self.received >= self.ends_after:
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
    """The outcome without the time of its report, which each host measures by its own clock."""
    return replace(outcome, report=outcome.report and replace(outcome.report, when=0.0))


def send(sock: socket.socket, *lines: bytes) -> None:
    with contextlib.suppress(OSError):
        sock.sendall(b"".join(line + b"\n" for line in lines))


def line(kind: str) -> bytes:
    """The example of a kind of message in MESSAGES, encoded."""
    return encode(kind, MESSAGES[kind]).rstrip()


@contextlib.contextmanager
def peer(leader: Leader) -> Iterator[socket.socket]:
    """A connection to the leader, on which nothing has been sent yet."""
    with socket.create_connection((LEADER, leader.port), timeout=5) as sock:
        yield sock


@contextlib.contextmanager
def joined(silence: float = 10.0) -> Iterator[tuple[Leader, Events, socket.socket]]:
    """A leader, and the socket of a worker whose messages the test sends."""
    with meeting(silence=silence) as (leader, events), peer(leader) as sock:
        send(sock, line("hello"), line("beat"))
        assert events.get(timeout=5) == Message(WORKER, "joined", {})
        yield leader, events, sock
