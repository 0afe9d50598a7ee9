"""Whatever a peer sends, or does not send, is refused or lost with a sentence; no thread dies of it, nobody waits."""

import contextlib
import json
import os
import random
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from berth.contract.errors import JobError
from berth.train.failure import FailureReport
from berth.train.hosts import listener, rendezvous, wire
from berth.train.hosts.events import Events, Lost, Message, Signalled
from berth.train.hosts.messages import MAX_LINE_BYTES, WireError, decode, encode
from berth.train.hosts.rendezvous import Introduction, Leader, Stopped, join
from berth.train.hosts.session import LeaderLoop
from berth.train.hosts.wire import LineSocket
from berth.train.outcome import Outcome, outcome_fields, read_outcome

pytestmark = pytest.mark.slow  # each waits for a deadline

LEADER, WORKER = "127.0.0.1", "localhost"
ELSEWHERE = "127.0.0.2"  # another address of this machine
MINE = Introduction(WORKER, 1, "key")

REPORT = FailureReport("no rows", 3, WORKER, 1, ("a", "b"), when=100.0)
MESSAGES: dict[str, dict[str, Any]] = {
    "hello": {"host": WORKER, "ranks": 1, "host_key": "k", "ssh_port": 22, "version": "1", "backend": "gloo"},
    "joined": {},
    "refused": {"reason": "why"},
    "beat": {},
    "welcome": {"key": "k", "master_port": "7777"},
    "ready": {},
    "done": outcome_fields(Outcome(3, REPORT), now=101.0),
    "ended": {},
    "outcome": outcome_fields(Outcome(3, REPORT), now=101.0),
    "bye": {},
}
SMALL = (
    'null true -1 0 1.5 70000 1e999 Infinity -Infinity NaN "" "7" "a\\nb" "\\u001b[2J" "\\ud800" [] [null] [[[]]] {} '
    '{"host":1}'
)
LARGE = ('"' + "x" * 3000 + '"', "9" * 5000, "[" * 100_000, '{"a":' * 40_000, "[" * 100_000 + "]" * 100_000)


def lines_with(kind: str) -> Iterator[bytes]:
    """The message with every value in every field, a report's fields too, and without it."""
    fields = MESSAGES[kind]
    places = [(name,) for name in fields] + [("report", name) for name in fields.get("report", {})]
    for *within, name in places:
        for value in [*SMALL.split(), *LARGE, None]:
            message = json.loads(json.dumps({"kind": kind, **fields}))
            holder = message[within[0]] if within else message
            del holder[name]
            if value is None:
                yield json.dumps(message).encode()
            else:
                holder[name] = "HERE"
                yield json.dumps(message).replace('"HERE"', value).encode()


def send(sock: socket.socket, *lines: bytes) -> None:
    with contextlib.suppress(OSError):
        sock.sendall(b"".join(line + b"\n" for line in lines))


def line(kind: str) -> bytes:
    return encode(kind, MESSAGES[kind]).rstrip()


@pytest.fixture(autouse=True)
def no_thread_dies(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    died: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    yield
    assert died == []


@contextlib.contextmanager
def meeting(resolve: Callable[[str], set[str]] = lambda host: {LEADER}, silence: float = 10.0) -> Iterator[Any]:
    events: Events = SimpleQueue()
    leader = Leader(LEADER, (WORKER,), events, port=0, silence=silence, resolve=resolve)
    try:
        yield leader, events
    finally:
        leader.close()


@contextlib.contextmanager
def peer(leader: Leader, address: str = LEADER) -> Iterator[socket.socket]:
    with socket.create_connection((LEADER, leader.port), timeout=5, source_address=(address, 0)) as sock:
        yield sock


@contextlib.contextmanager
def joined(silence: float = 10.0) -> Iterator[tuple[Leader, Events, socket.socket]]:
    """A leader, and a worker of which the test is the voice."""
    with meeting(silence=silence) as (leader, events), peer(leader) as sock:
        send(sock, line("hello"), line("beat"))
        assert events.get(timeout=5) == Message(WORKER, "joined", {})
        yield leader, events, sock


@contextlib.contextmanager
def speaking_leader(*lines: bytes) -> Iterator[int]:
    """A leader's port, where each connection's hello is answered with these lines, and then with silence."""
    with socket.create_server((LEADER, 0)) as server:
        met = []

        def run() -> None:
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = server.accept()
                    met.append(sock)
                    sock.recv(65536)
                    send(sock, *lines)

        threading.Thread(target=run, daemon=True).start()
        yield server.getsockname()[1]
        for sock in met:
            sock.close()
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("kind", [kind for kind, fields in MESSAGES.items() if fields])
def test_every_value_in_every_field_is_read_or_refused(kind: str) -> None:
    read, refused = 0, []
    for each in lines_with(kind):
        try:
            found, fields = decode(each)
        except WireError as error:
            refused.append(str(error))
            continue
        read += 1
        assert found == kind
        assert fields.keys() == MESSAGES[kind].keys()
        encode(found, fields).decode()
        if kind in ("done", "outcome"):
            read_outcome(fields, now=0.0)
    assert 0 < read < 60, "values of the field's own type are read"
    assert all(each.startswith(("a message was not JSON", f"a message {kind} made no sense: ")) for each in refused)


def test_what_the_kit_sends_is_read() -> None:
    for kind, fields in MESSAGES.items():
        assert decode(encode(kind, fields)) == (kind, json.loads(json.dumps(fields)))
    assert decode(b'{"kind": "hello", "host": "h", "ranks": 1, "host_key": "", "ssh_port": 0, "version": "0", "x": []}')


def test_a_field_that_makes_no_sense_is_named() -> None:
    with pytest.raises(WireError, match=r"a message done made no sense: its code was not a whole number from 0 to 255"):
        decode(b'{"kind": "done", "code": null, "report": null}')


NONSENSE = [
    b"hello",
    b"[]",
    b'{"kind": 1}',
    b'{"kind": "hello"}',
    b'{"kind": "ready"}',
    b'{"kind": "x", "a": ' + b"[" * 100_000,
    b"\xff\xfe\x00",
    line("hello").replace(b'"ranks": 1', b'"ranks": Infinity'),
    b"x" * (MAX_LINE_BYTES + 9),
]


@pytest.mark.parametrize("nonsense", NONSENSE, ids=[f"{each[:20]!r}" for each in NONSENSE])
def test_nonsense_instead_of_a_hello_is_refused_with_a_reason(nonsense: bytes) -> None:
    with meeting() as (leader, events), peer(leader) as sock:
        send(sock, nonsense)
        sock.settimeout(5)
        answer = b""
        with contextlib.suppress(ConnectionError):  # what was not read resets the connection
            while data := sock.recv(65536):
                answer += data
        if len(nonsense) < 65536:
            assert decode(answer)[0] == "refused"
        assert not leader.introductions
        join(LEADER, MINE, SimpleQueue(), 5, leader.port)
        assert events.get(timeout=5) == Message(WORKER, "joined", {})


@pytest.mark.parametrize("nonsense", NONSENSE, ids=[f"{each[:20]!r}" for each in NONSENSE])
def test_nonsense_of_a_host_that_joined_is_its_loss(nonsense: bytes) -> None:
    if nonsense == line("ready"):
        nonsense = line("welcome")  # which is for the leader to send
    with joined() as (_, events, sock):
        send(sock, nonsense)
        event = events.get(timeout=5)
        assert isinstance(event, Lost)
        assert event.reason.startswith("a message ")
        sock.settimeout(5)
        with contextlib.suppress(ConnectionError):
            while sock.recv(65536):
                pass


@pytest.mark.parametrize("nonsense", NONSENSE[:-1], ids=[f"{each[:20]!r}" for each in NONSENSE[:-1]])
def test_nonsense_of_a_leader_is_an_obstacle_or_its_loss(nonsense: bytes) -> None:
    with speaking_leader(nonsense) as port:
        with pytest.raises(JobError, match=r"could not reach the leader .* \((a message|the leader refused|\[Errno)"):
            join(LEADER, MINE, SimpleQueue(), 0.1, port)
    own: Events = SimpleQueue()
    with speaking_leader(line("joined"), nonsense) as port:
        join(LEADER, MINE, own, 5, port)
        event = own.get(timeout=5)
    assert isinstance(event, Lost)
    assert event.reason.startswith("a message ")


def test_random_lines_end_in_one_loss() -> None:
    """Whole messages with bytes changed, cut and repeated, as 60 hosts that joined say them."""
    dice = random.Random(13)
    for _ in range(60):
        with joined() as (_, events, sock):
            for _ in range(20):
                said = bytearray(line(dice.choice(["ready", "done", "bye", "beat", "welcome"])))
                for _ in range(dice.randrange(4)):
                    at = dice.randrange(len(said))
                    said[at : at + dice.randrange(3)] = dice.randbytes(dice.randrange(3))
                send(sock, bytes(said))
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
            found = [events.get(timeout=5)]
            while not isinstance(found[-1], Lost):
                found.append(events.get(timeout=5))
            assert events.empty()
            assert len(found) <= 4, "each kind is heard once"


def test_a_fault_of_our_own_is_a_loss_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with joined() as (_, events, sock):

        def fault(line: bytes) -> Any:
            raise KeyError("x")

        monkeypatch.setattr(wire, "decode", fault)
        send(sock, line("ready"))
        assert events.get(timeout=5) == Lost(WORKER, "KeyError: 'x'; please report it with this log")


def test_no_thread_for_a_host_that_joins_is_its_loss(monkeypatch: pytest.MonkeyPatch) -> None:
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
    """Send a byte each 0.2 s that begins a message and never ends it; the seconds until the other side hung up."""
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


def test_a_hello_that_drips_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "GREETING_SECONDS", 1.0)
    with meeting() as (leader, _), peer(leader) as sock:
        assert 0.7 < drip(sock, 15) < 10


def test_a_message_that_drips_is_no_sign_of_life() -> None:
    with joined(silence=1.0) as (_, events, sock):
        assert 0.7 < drip(sock, 15) < 10
        assert events.get(timeout=5) == Lost(WORKER, "no sign of life for 1 s")


@pytest.mark.parametrize("address", [ELSEWHERE, LEADER])
def test_those_who_hold_connections_keep_no_worker_out(address: str) -> None:
    end = threading.Event()
    with meeting() as (leader, events), contextlib.ExitStack() as stack:
        held = [stack.enter_context(peer(leader, address)) for _ in range(120)]

        def drip_all() -> None:
            while not end.wait(0.5):
                for sock in held:
                    with contextlib.suppress(OSError):
                        sock.send(b" ")

        stack.callback(end.set)
        threading.Thread(target=drip_all, daemon=True).start()
        began = time.monotonic()
        join(LEADER, MINE, SimpleQueue(), 15, leader.port)
        assert events.get(timeout=5) == Message(WORKER, "joined", {})
        assert time.monotonic() - began < 6


def test_no_file_descriptor_for_a_while_is_waited_for() -> None:
    """accept() fails for real: this process may open nothing more."""
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
        join(LEADER, MINE, SimpleQueue(), 5, leader.port)
        assert events.get(timeout=5) == Message(WORKER, "joined", {})


@pytest.fixture
def short_greetings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A greeting's message may take 1.5 s, so that a resolver of 3 s is what one of 20 s is otherwise."""
    for module in (listener, rendezvous):
        monkeypatch.setattr(module, "GREETING_SECONDS", 1.5)
    monkeypatch.setattr(rendezvous, "HEARTBEAT_SECONDS", 0.2)


def slowly(host: str) -> set[str]:
    time.sleep(3)
    return {LEADER}


@pytest.mark.usefixtures("short_greetings")
@pytest.mark.slow
def test_a_name_that_the_leader_looks_up_slowly_is_waited_for() -> None:
    with meeting(slowly) as (leader, events):
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
    with meeting(slowly) as (leader, events):
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
    with meeting(slowly) as (leader, _):
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


def test_a_host_that_beats_but_takes_no_message_is_lost() -> None:
    with joined(silence=1.0) as (leader, events, sock):
        end = threading.Event()

        def beat() -> None:
            while not end.wait(0.2):
                send(sock, line("beat"))

        threading.Thread(target=beat, daemon=True).start()
        try:
            deadline = time.monotonic() + 20
            while events.empty() and time.monotonic() < deadline:
                leader.broadcast("welcome", key="k" * 200_000)
            assert events.get(timeout=5) == Lost(WORKER, "it took no message for 1 s")
        finally:
            end.set()


def follow(sock: socket.socket, report: FailureReport, clock: float) -> None:
    """A worker whose rank failed with `report`, by a clock that says `clock` now."""
    lines = LineSocket(sock, 5)
    lines.send("ready")
    lines.send("done", **outcome_fields(Outcome(3, report), clock))
    with contextlib.suppress(WireError):
        while lines.receive()[0] != "outcome":
            pass
        lines.send("bye")


class Lead:
    """A leader's host of which one rank has failed."""

    name = LEADER

    def __init__(self, report: FailureReport) -> None:
        self.report = report

    def reports(self) -> list[FailureReport]:
        return [self.report]

    def admit(self, leader: Leader) -> dict[str, str]:
        return {"key": "", "master_port": "1"}

    def signal(self, number: int) -> int:
        return 0

    def launcher_output(self) -> list[str]:
        return []

    def finish(self, outcome: Outcome) -> None:
        pass

    prepare = start = stop = lambda self: None


@pytest.mark.parametrize("skew", [-300.0, 300.0])
@pytest.mark.parametrize(("ago", "blamed"), [(9.0, WORKER), (1.0, LEADER)])
def test_the_first_failure_is_the_cause_whatever_the_hosts_clocks_say(skew: float, ago: float, blamed: str) -> None:
    """The leader's rank failed five seconds ago, the worker's nine or one, by a clock that is five minutes off."""
    with joined() as (leader, events, sock):
        own = FailureReport("the leader's", 1, LEADER, 0, when=time.time() - 5)
        theirs = time.time() + skew
        thread = threading.Thread(
            target=follow, args=(sock, FailureReport("the worker's", 3, WORKER, 1, when=theirs - ago), theirs)
        )
        thread.start()
        outcome = LeaderLoop(leader, Lead(own), events, everywhere=False).run(5)
        thread.join(10)
    assert outcome.report is not None
    assert outcome.report.host == blamed
