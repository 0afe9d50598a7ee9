"""How the hosts of a job meet: each worker opens one TCP connection to the leader, by the leader's name.

    worker → leader   hello      name, public ssh keys and port, backend, berth's version, number of ranks (0: it can't
                                 take part, and sends the reason in `done`)
    leader → worker   beat       every second while the leader resolves the worker's name, however long that takes
    leader → worker   joined     with the seconds of silence after which a host counts as lost
                      refused    instead of joined, with the reason; the worker retries until its deadline
    worker → leader   beat       immediately, then every second, like the leader; with the first one it has joined
    leader → worker   welcome    when all hosts have joined: the leader's public ssh keys, the port for training. Under
                                 SDK v3's driver (berth.train.sdk3) the outcome comes next: the job begins afterwards
    worker → leader   ready      program installed, sshd listening
    either → other    stop       its entry got a first or a second signal; the leader forwards it to every worker
    worker → leader   done       exit code and failure report of that host
    leader → worker   ended      stop your programs and send done
    leader → worker   outcome    exit code and failure of the whole job
    worker → leader   bye        everything is written; the leader may exit

SageMaker gives the hosts of a job no shared secret. So this is trust on first use inside the job's own network: the
leader accepts a name only once, and only if the connection comes from an address to which the name resolves. Anyone who
can send from such an address could take part; nobody else can. The connection stays open and carries heartbeats
(berth.train.hosts.wire).

Anyone may connect. A separate thread greets each connection, and each message of the greeting must arrive within 10 s.
Before a host has joined, an error on its connection ends only that connection.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass
from queue import Empty
from typing import Any

from berth.contract.errors import JobError
from berth.contract.host_names import listed
from berth.train.hosts.events import Events, Lost, Message, Signalled
from berth.train.hosts.log import get_logger
from berth.train.hosts.lookup import connect, in_background, plain_address, resolve
from berth.train.hosts.messages import WireError
from berth.train.hosts.wire import DEFAULT_SILENCE_SECONDS, HEARTBEAT_SECONDS, HostConnection, LineSocket

PORT = 7717
DEFAULT_TIMEOUT_SECONDS = 600.0  # BERTH_RENDEZVOUS_TIMEOUT sets another (berth/contract/launch_options.py)
GREETING_SECONDS = 10.0
_DIAL_SECONDS = 5.0
_LOG_EVERY_SECONDS = 15.0
_TRY_EVERY_SECONDS = 0.5
_ACCEPT_AGAIN_SECONDS = 1.0
_REASON_CHARACTERS = 1000
_LATE_SECONDS = 60.0
_BYE_SECONDS = 2.0


class Stopped(Exception):
    """This host got a stop signal before the job had started."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(frozen=True, slots=True)
class Introduction:
    """The fields of a worker's `hello`. Keys are OpenSSH public keys; `ssh_port` is 0 if the worker runs no sshd.

    `ranks` is 0 for a host that can't take part: it joins only to send a `done` with the reason.
    """

    host: str
    ranks: int
    host_key: str = ""
    ssh_port: int = 0
    version: str = ""
    backend: str = ""
    client_key: str = ""


class Leader:
    """The leader's side. Without workers it does not listen, and every call returns at once."""

    def __init__(
        self,
        leader: str,
        workers: Sequence[str],
        events: Events,
        port: int = PORT,
        silence: float = DEFAULT_SILENCE_SECONDS,
        resolve: Callable[[str], set[str]] = resolve,
    ) -> None:
        self.name = leader
        self.workers = tuple(workers)
        self.introductions: dict[str, Introduction] = {}
        self.connections: dict[str, HostConnection] = {}
        self._events = events
        self._silence = silence
        self._resolve = resolve
        self._joining = threading.Lock()
        self._answering: set[str] = set()  # hosts that were sent `joined` and have not sent a beat yet
        self._refused: set[tuple[str, str]] = set()
        self._closed = threading.Event()
        self._server: socket.socket | None = None
        if self.workers:
            try:
                self._server = server = socket.create_server(("", port), backlog=max(128, len(self.workers)))
            except OSError as error:
                raise JobError(
                    f"the leader can't listen on port {port} ({error.strerror}), where the hosts meet; free that port."
                ) from error
            self.port: int = server.getsockname()[1]
            threading.Thread(target=self._accept, args=(server,), name="rendezvous", daemon=True).start()

    def gather(self, timeout: float) -> None:
        """Wait until every worker has joined. JobError names the workers that did not join within `timeout` seconds,
        that were lost, or that can't take part.
        """
        begin = logged = time.monotonic()
        while missing := self._missing():
            now = time.monotonic()
            if now - begin >= timeout:
                one = len(missing) == 1
                noun, logs = ("host", "that host's own log") if one else ("hosts", "the logs of those hosts")
                raise JobError(
                    f"{noun} {listed(missing)} did not join the leader {self.name} within {timeout:.0f} s; look at "
                    f"{logs}, and let the job's hosts reach each other on all ports (security group)."
                )
            if now - logged >= _LOG_EVERY_SECONDS:
                logged = now
                get_logger().info("rendezvous: waiting for %s, %.0f of %.0f s", listed(missing), now - begin, timeout)
            event = _next_event(self._events, min(1.0, max(0.05, timeout - (now - begin))))
            if isinstance(event, Lost):
                raise JobError(
                    f"host {event.host} was lost before all hosts had joined ({event.reason}); look at that host's own "
                    "log."
                )
            if isinstance(event, Message) and event.kind != "joined":
                report = event.fields.get("report")
                reason = report["sentence"] if report else "look at that host's own log."
                raise JobError(f"host {event.host} stopped before all hosts had joined: {reason}")

    def _missing(self) -> list[str]:
        """The workers that have not joined or can't take part."""
        taking_part = {host for host, introduction in dict(self.introductions).items() if introduction.ranks}
        return [host for host in self.workers if host not in taking_part]

    def broadcast(self, kind: str, **fields: Any) -> None:
        """Send to every worker that has joined."""
        for connection in list(self.connections.values()):
            connection.send(kind, **fields)

    def dismiss(self, outcome: Mapping[str, Any], deadline: float) -> None:
        """Send `outcome` (the fields of its message) to every worker, wait for their `bye`, and close the connections.

        Waits for workers that have not joined yet until `deadline` (monotonic clock), but at most a minute; they would
        otherwise try to reach the leader for much longer. A signal ends this wait.
        """
        join_deadline = min(deadline, time.monotonic() + _LATE_SECONDS)
        bye_deadline = 0.0
        informed: set[str] = set()
        departed: set[str] = set()
        while True:
            now = time.monotonic()
            for host in set(self.connections) - informed:
                self.connections[host].send("outcome", **outcome)
                informed.add(host)
                bye_deadline = now + _BYE_SECONDS
            staying = [host for host in informed - departed if not self.connections[host].closed]
            all_informed = len(informed) == len(self.workers)
            until = max(bye_deadline if staying else now, now if all_informed else join_deadline)
            if until <= now:
                break
            try:
                event = self._events.get(timeout=until - now)
            except Empty:
                continue
            if isinstance(event, Message) and event.kind == "bye":
                departed.add(event.host)
            elif isinstance(event, Signalled):
                join_deadline = now
        if staying:
            get_logger().info("rendezvous: no bye from %s in %.0f s", listed(staying), _BYE_SECONDS)
        self.close()

    def close(self) -> None:
        """Stop listening and close the connections."""
        self._closed.set()
        if self._server is not None:
            # close() alone does not wake a thread that waits in accept().
            with contextlib.suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)
            self._server.close()
        for connection in list(self.connections.values()):
            connection.close()

    def _accept(self, server: socket.socket) -> None:
        while not self._closed.is_set():
            sock = None
            try:
                sock, address = server.accept()
                greeted = LineSocket(sock, GREETING_SECONDS), plain_address(address[0])
                threading.Thread(target=self._greet, args=greeted, name="greeting", daemon=True).start()
            except (OSError, RuntimeError) as error:  # out of file descriptors or threads
                if sock is not None:
                    sock.close()
                if not self._closed.wait(_ACCEPT_AGAIN_SECONDS):
                    get_logger().info("rendezvous: could not accept a connection (%s); trying again", error)

    def _greet(self, lines: LineSocket, address: str) -> None:
        try:
            try:
                kind, fields = lines.receive()
                if kind != "hello":
                    raise WireError("the first message was not hello")
                introduction = Introduction(**fields)
                reason = self._objection(introduction, address, lines) or self._take(introduction, lines)
            except (WireError, OSError) as error:
                reason = str(error)
            if reason is not None:
                self._refuse(lines, address, reason)
            else:
                get_logger().info("rendezvous: %s has joined", introduction.host)
        except Exception as error:  # a bug in berth: close this connection; the worker retries
            get_logger().error("rendezvous: greeting %s failed (%s: %s)", address, type(error).__name__, error)
            lines.close()

    def _objection(self, introduction: Introduction, address: str, lines: LineSocket) -> str | None:
        """Why the leader does not accept a worker; None if it does. Sends beats while it resolves the worker's name."""
        host = introduction.host
        if host not in self.workers:
            return f"{host!r} is not a host of this job"
        lookup = in_background(f"look up {host}", lambda: self._resolve(host))
        while not wait([lookup], HEARTBEAT_SECONDS).done:
            lines.send("beat")
        addresses = lookup.result()
        if address not in addresses:
            return f"{host} resolves to {', '.join(sorted(addresses)) or 'nothing'} here, not to {address}"
        return None

    def _take(self, introduction: Introduction, lines: LineSocket) -> str | None:
        """Let a worker join. Returns the reason if a host of that name has joined; WireError if it sends no beat."""
        host = introduction.host
        with self._joining:
            if host in self.connections or host in self._answering:
                return f"{host} has joined already"
            self._answering.add(host)
        try:
            lines.send("joined", silence=self._silence)
            if lines.receive()[0] != "beat":
                raise WireError("the message after its hello was not beat")
            connection = HostConnection(lines, host, self._events, self._silence)
            self.connections[host] = connection
            self.introductions[host] = introduction
        finally:
            with self._joining:
                self._answering.remove(host)
        # This wakes `gather`.
        self._events.put(Message(host, "joined", {}))
        connection.start()
        return None

    def _refuse(self, lines: LineSocket, address: str, reason: str) -> None:
        """Send the reason and close. Log each reason once per address: a refused worker retries at once."""
        reason = reason[:_REASON_CHARACTERS]
        with self._joining:
            new = (address, reason) not in self._refused
            self._refused.add((address, reason))
        if new:
            get_logger().info("rendezvous: refused a connection from %s: %s", address, reason)
        with contextlib.suppress(WireError):  # the connection may be closed
            lines.send("refused", reason=reason)
        lines.close()


def join(
    leader: str, introduction: Introduction, events: Events, timeout: float, port: int = PORT, interface: str = ""
) -> HostConnection:
    """Join the leader, retrying for `timeout` seconds; returns a connection that already sends beats. It is opened from
    the address of `interface` unless that is empty.

    Raises JobError with the leader and the last error, or Stopped.
    """
    begin = logged = time.monotonic()
    while True:
        try:
            dial = in_background("dial", lambda: connect(leader, port, interface, _DIAL_SECONDS))
            sock = _await_dial(leader, dial, events, begin + timeout)
            return _join_once(leader, introduction, events, sock, begin + timeout)
        except (OSError, WireError) as error:
            obstacle = str(error)
        now = time.monotonic()
        if now - begin >= timeout:
            raise JobError(
                f"{introduction.host} could not reach the leader {leader} on port {port} within {timeout:.0f} s "
                f"({obstacle}); look at "
                "the leader's own log, and let the job's hosts reach each other on all ports (security group)."
            )
        if now - logged >= _LOG_EVERY_SECONDS:
            logged = now
            get_logger().info(
                "rendezvous: still trying to reach the leader %s (%s), %.0f of %.0f s",
                leader,
                obstacle,
                now - begin,
                timeout,
            )
        _next_event(events, _TRY_EVERY_SECONDS)


def _join_once(
    leader: str, introduction: Introduction, events: Events, sock: socket.socket, deadline: float
) -> HostConnection:
    lines = LineSocket(sock, GREETING_SECONDS)
    try:
        lines.send("hello", **asdict(introduction))
        while (answer := lines.receive())[0] == "beat":
            _next_event(events, 0)
            if time.monotonic() > deadline:
                raise WireError(f"the leader was still resolving the name {introduction.host}")
        kind, fields = answer
        if kind != "joined":
            raise WireError(f"the leader refused: {fields.get('reason', 'no reason given')}")
        connection = HostConnection(lines, leader, events, fields["silence"])
    except BaseException:
        lines.close()
        raise
    connection.start()
    return connection


def _await_dial(leader: str, dialling: Future[socket.socket], events: Events, deadline: float) -> socket.socket:
    """Wait for the connection until a signal or the deadline, because the resolver has no time limit."""
    while not wait([dialling], _TRY_EVERY_SECONDS).done:
        _next_event(events, 0)
        if time.monotonic() > deadline + _DIAL_SECONDS:
            raise WireError(f"connecting took too long: the name {leader} may resolve slowly")
    return dialling.result()


def _next_event(events: Events, timeout: float) -> Lost | Message | None:
    """The next Lost or Message event, None if there is none in time. Stopped if a signal comes."""
    try:
        event = events.get(timeout=timeout)
    except Empty:
        return None
    if isinstance(event, Signalled):
        raise Stopped(event.number)
    return event if isinstance(event, Lost | Message) else None
