"""Where the hosts of a job meet: one TCP connection from each worker to the leader, by the leader's name.

    worker → leader   hello      name, sshd host key and port, ranks, backend, kit version
    leader → worker   joined     (or refused, with the reason: the worker tries again until its deadline)
    leader → worker   welcome    once all hosts are here: the job's public key, the port for training
    worker → leader   ready      program installed, sshd listening
    worker → leader   done       exit code and failure report of that host
    leader → worker   ended      stop what you run and say done
    leader → worker   outcome    exit code and failure of the whole job
    worker → leader   bye        everything is written; the leader may leave

SageMaker gives the hosts of a job no shared secret. So this is trust on first use inside the job's own network: a name
is believed if the connection comes from an address that this name resolves to, and only once. Whoever can send from
such an address could take part; nobody else can. The connection stays open as the sign of life of both sides
(berth.train.hosts.wire).
"""

import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from queue import Empty
from typing import Any

from berth.contract.errors import JobError
from berth.train.hosts.events import Events, Lost, Message, Signalled
from berth.train.hosts.wire import SILENCE_SECONDS, Connection, LineSocket, WireError
from berth.train.log import get_logger

PORT = 7717
TIMEOUT_SECONDS = 600.0
_GREETING_SECONDS = 10.0
_SAY_EVERY_SECONDS = 15.0
_TRY_EVERY_SECONDS = 0.5


class Stopped(Exception):
    """This host was told to stop (a signal) before the job had started."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a worker says of itself. `host_key` is an OpenSSH public key; `ssh_port` 0 if its sshd is not needed."""

    host: str
    ranks: int
    host_key: str = ""
    ssh_port: int = 0
    version: str = ""
    backend: str = ""


def kit_version() -> str:
    """The installed kit's version, so that hosts with different images don't train together."""
    try:
        return metadata.version("berth")
    except metadata.PackageNotFoundError:
        return "unknown"


def resolve(host: str) -> set[str]:
    """The IP addresses of a name now, empty if it has none (yet)."""
    try:
        return {_plain_address(str(info[4][0])) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError:
        return set()


def _plain_address(text: str) -> str:
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


class Leader:
    """The leader's side. With no workers it listens to nobody and every call returns at once."""

    def __init__(
        self,
        leader: str,
        workers: Sequence[str],
        events: Events,
        port: int = PORT,
        silence: float = SILENCE_SECONDS,
        resolve: Callable[[str], set[str]] = resolve,
    ) -> None:
        self.name = leader
        self.workers = tuple(workers)
        self.introductions: dict[str, Introduction] = {}
        self.connections: dict[str, Connection] = {}
        self._events = events
        self._silence = silence
        self._resolve = resolve
        self._joining = threading.Lock()
        self._greeting = threading.BoundedSemaphore(2 * len(self.workers) + 16)
        self._server: socket.socket | None = None
        if self.workers:
            try:
                self._server = socket.create_server(("", port), backlog=max(16, len(self.workers)))
            except OSError as error:
                raise JobError(
                    f"the leader can't listen on port {port} ({error.strerror}); free it, for the hosts meet there."
                ) from error
            self.port: int = self._server.getsockname()[1]
            threading.Thread(target=self._accept, args=(self._server,), name="rendezvous", daemon=True).start()

    def gather(self, timeout: float) -> None:
        """Wait until every worker has joined. JobError names those that did not come in `timeout` seconds, or that left
        again.
        """
        begin = said = time.monotonic()
        while missing := [host for host in self.workers if host not in self.introductions]:
            now = time.monotonic()
            if now - begin >= timeout:
                raise JobError(
                    f"{_names(missing)} never came to the rendezvous at {self.name} within {timeout:.0f} s; look at "
                    "that host's own log, "
                    "and let the job's hosts reach each other on all ports (security group)."
                )
            if now - said >= _SAY_EVERY_SECONDS:
                said = now
                get_logger().info(
                    "rendezvous: waiting for %s, %.0f of %.0f s", ", ".join(missing), now - begin, timeout
                )
            event = _next_event(self._events, min(1.0, max(0.05, timeout - (now - begin))))
            if isinstance(event, Lost):
                raise JobError(f"host {event.host} left the rendezvous ({event.reason}); look at that host's own log.")
            if isinstance(event, Message) and event.kind != "joined":
                raise JobError(f"host {event.host} stopped before all hosts had come; look at that host's own log.")

    def broadcast(self, kind: str, **fields: Any) -> None:
        """Send to every worker that has joined."""
        for connection in list(self.connections.values()):
            connection.send(kind, **fields)

    def close(self) -> None:
        """Stop listening and hang up."""
        if self._server is not None:
            # Closing alone does not wake a thread that waits in accept().
            with contextlib.suppress(OSError):
                self._server.shutdown(socket.SHUT_RDWR)
            self._server.close()
        for connection in self.connections.values():
            connection.close()

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                sock, _ = server.accept()
            except OSError:
                return
            if self._greeting.acquire(blocking=False):
                threading.Thread(target=self._greet, args=(sock,), name="greeting", daemon=True).start()
            else:
                sock.close()

    def _greet(self, sock: socket.socket) -> None:
        lines = LineSocket(sock)
        lines.set_timeout(_GREETING_SECONDS)
        try:
            introduction = _read_hello(lines.receive())
            reason = self._objection(introduction, _plain_address(lines.peer_address))
            if reason is None:
                with self._joining:
                    if introduction.host in self.connections:
                        reason = f"{introduction.host} has joined already"
                    else:
                        connection = Connection(lines, introduction.host, self._events, silence=self._silence)
                        lines.send("joined")
                        self.connections[introduction.host] = connection
                        connection.start()
                        self.introductions[introduction.host] = introduction
                        # Wakes `gather`.
                        self._events.put(Message(introduction.host, "joined", {}))
            if reason is None:
                get_logger().info("rendezvous: %s has joined", introduction.host)
            else:
                get_logger().info("rendezvous: refused a connection from %s: %s", lines.peer_address, reason)
                lines.send("refused", reason=reason)
                lines.close()
        except (WireError, OSError):
            lines.close()
        finally:
            self._greeting.release()

    def _objection(self, introduction: Introduction, address: str) -> str | None:
        if introduction.host not in self.workers:
            return f"{introduction.host!r} is not a host of this job"
        known = self._resolve(introduction.host)
        if address not in known:
            return f"{introduction.host} resolves to {', '.join(sorted(known)) or 'nothing'} here, not to {address}"
        return None


def _read_hello(message: dict[str, Any]) -> Introduction:
    if message.get("kind") != "hello":
        raise WireError("the first message was no hello")
    try:
        introduction = Introduction(
            host=str(message["host"])[:255],
            ranks=int(message["ranks"]),
            host_key=str(message["host_key"])[:1024],
            ssh_port=int(message["ssh_port"]),
            version=str(message["version"])[:64],
            # Of another version of the kit, which says none: to be told as that.
            backend=str(message.get("backend", ""))[:64],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise WireError("a hello was incomplete") from error
    if "\n" in introduction.host_key or not 0 <= introduction.ssh_port < 65536:
        raise WireError("a hello made no sense")
    return introduction


def join(leader: str, introduction: Introduction, events: Events, timeout: float, port: int = PORT) -> Connection:
    """Meet the leader, trying again for `timeout` seconds; the connection that comes back beats already.

    Raises JobError, naming the leader and the last obstacle, or Stopped.
    """
    begin = said = time.monotonic()
    while True:
        try:
            return _join_once(leader, introduction, events, port)
        except (OSError, WireError) as error:
            obstacle = str(error)
        now = time.monotonic()
        if now - begin >= timeout:
            raise JobError(
                f"{introduction.host} could not reach the leader {leader} on port {port} within {timeout:.0f} s "
                f"({obstacle}); look at "
                "the leader's own log, and let the job's hosts reach each other on all ports (security group)."
            )
        if now - said >= _SAY_EVERY_SECONDS:
            said = now
            get_logger().info(
                "rendezvous: still trying to reach the leader %s (%s), %.0f of %.0f s",
                leader,
                obstacle,
                now - begin,
                timeout,
            )
        _next_event(events, _TRY_EVERY_SECONDS)


def _join_once(leader: str, introduction: Introduction, events: Events, port: int) -> Connection:
    sock = socket.create_connection((leader, port), timeout=5)
    lines = LineSocket(sock)
    lines.set_timeout(_GREETING_SECONDS)
    try:
        lines.send("hello", **asdict(introduction))
        answer = lines.receive()
        if answer["kind"] != "joined":
            raise WireError(f"the leader refused: {answer.get('reason', 'no reason given')}")
        connection = Connection(lines, leader, events)
    except WireError:
        lines.close()
        raise
    connection.start()
    return connection


def _next_event(events: Events, timeout: float) -> Lost | Message | None:
    """An event of the rendezvous, if one comes in time; a signal ends the waiting."""
    try:
        event = events.get(timeout=timeout)
    except Empty:
        return None
    if isinstance(event, Signalled):
        raise Stopped(event.number)
    return event if isinstance(event, Lost | Message) else None


def _names(hosts: Sequence[str]) -> str:
    return f"host {hosts[0]}" if len(hosts) == 1 else f"hosts {', '.join(hosts)}"
