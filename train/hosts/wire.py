"""One rendezvous connection: JSON lines over TCP, with a sign of life in both directions.

Each side sends a beat every second. Silence for `silence` seconds, which is the time that a whole message may take, a
closed connection or a line that is no message (berth.train.hosts.messages) is reported once as Lost, and ends the
connection. What arrives is put on the host's event queue.

The threads that beat and listen write nothing to the log: whoever reads it may be slow, and a host whose log is full is
alive. A third one warns there at half of that time.
"""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Set
from typing import Any

from berth.contract.launch_options import PEER_TIMEOUT
from berth.train.hosts.events import Events, Lost, Message
from berth.train.hosts.messages import MAX_LINE_BYTES, WireError, decode, encode
from berth.train.log import get_logger

HEARTBEAT_SECONDS = 1.0
DEFAULT_SILENCE_SECONDS = 60.0  # BERTH_PEER_TIMEOUT sets another (contract/launch_options.py)


class LineSocket:
    """Reads and writes messages on a socket; each takes `timeout` seconds at most, however slowly its bytes come."""

    def __init__(self, sock: socket.socket, timeout: float) -> None:
        self._socket = sock
        self._buffer = bytearray()
        self._sending = threading.Lock()
        self._ended = "the connection was closed"
        self._timeout = timeout
        sock.settimeout(timeout)

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message; WireError if the connection is gone."""
        line = encode(kind, fields)
        try:
            with self._sending:
                self._socket.sendall(line)
        except TimeoutError as error:
            # Half a line may have gone: nothing that comes after it could be read. Who receives is to tell.
            self._ended = f"it took no message for {self._timeout:.0f} s"
            self.close()
            raise WireError(self._ended) from error
        except OSError as error:
            raise WireError(str(error)) from error

    def receive(self) -> tuple[str, dict[str, Any]]:
        """Kind and fields of the next message; WireError if there is none."""
        deadline = time.monotonic() + self._timeout
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > MAX_LINE_BYTES:
                raise WireError("a message was too long")
            try:
                if not self._readable(deadline - time.monotonic()):
                    raise WireError(f"no sign of life for {self._timeout:.0f} s")
                data = self._socket.recv(65536)
            except (OSError, ValueError) as error:  # ValueError: closed by another thread
                raise WireError(self._ended if self._socket.fileno() < 0 else str(error)) from error
            if not data:
                raise WireError(self._ended)
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return decode(line)

    def _readable(self, seconds: float) -> bool:
        """Whether something can be read in time. Not by the socket's own time-out, which writes need as it is."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))

    def set_timeout(self, seconds: float) -> None:
        """How long a message may take, in each direction."""
        self._timeout = seconds
        self._socket.settimeout(seconds)

    @property
    def peer_address(self) -> str:
        """The other side's IP address."""
        return str(self._socket.getpeername()[0])

    @property
    def own_address(self) -> str:
        """The IP address of this host that the other side sees."""
        return str(self._socket.getsockname()[0])

    def close(self) -> None:
        """Close; the other side notices at once."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class HostConnection:
    """A greeted connection to `host`: beats in the background, and puts what arrives on `events`.

    `kinds`: what the other side may say, each but the beat once. `silence`: seconds without a word after which it is
    lost.
    """

    def __init__(
        self,
        lines: LineSocket,
        host: str,
        events: Events,
        kinds: Set[str],
        silence: float = DEFAULT_SILENCE_SECONDS,
    ) -> None:
        self.host = host
        self.silence = silence
        self.address = lines.peer_address
        self.own_address = lines.own_address
        self._lines = lines
        self._events = events
        self._kinds = set(kinds)
        self._ending = threading.Lock()
        self._closed = threading.Event()
        self._heard_at = time.monotonic()
        lines.set_timeout(silence)

    @property
    def closed(self) -> bool:
        """Whether the connection has ended, on purpose or not."""
        return self._closed.is_set()

    def start(self) -> None:
        """Begin to listen and to beat; the first beat goes at once."""
        self._heard_at = time.monotonic()
        try:
            for work in (self._listen, self._send_beats, self._watch):
                threading.Thread(target=self._run, args=(work,), name=f"rendezvous {self.host}", daemon=True).start()
        except RuntimeError as error:
            self._lose(f"this host can start no more threads ({error})")

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message; a connection that is gone is reported by the listener, not here."""
        with contextlib.suppress(WireError):
            self._lines.send(kind, **fields)

    def close(self) -> None:
        """End the connection on purpose: no Lost is reported."""
        with self._ending:
            self._closed.set()
        self._lines.close()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except WireError as error:
            self._lose(str(error))
        except Exception as error:  # the kit's own fault: a thread that only died would let the job wait for ever
            self._lose(f"{type(error).__name__}: {error}; please report it with this log")

    def _lose(self, reason: str) -> None:
        with self._ending:
            if self._closed.is_set():
                return
            self._closed.set()
        self._lines.close()
        self._events.put(Lost(self.host, reason))

    def _listen(self) -> None:
        while True:
            kind, fields = self._lines.receive()
            self._heard_at = time.monotonic()
            if kind not in self._kinds:
                raise WireError(f"a message {kind} came twice, or is not for it to send")
            if kind != "beat":
                # Once each, so that what waits to be read has a bound.
                self._kinds.remove(kind)
                self._events.put(Message(self.host, kind, fields))

    def _send_beats(self) -> None:
        self.send("beat")
        while not self._closed.wait(HEARTBEAT_SECONDS):
            self.send("beat")

    def _watch(self) -> None:
        """Warn once when half of the time has passed in silence, and tell when the host is heard from again."""
        quiet_since: float | None = None
        looked_at = time.monotonic()
        while not self._closed.wait(min(HEARTBEAT_SECONDS, self.silence / 4)):
            heard_at, now = self._heard_at, time.monotonic()
            stood_still = now - looked_at > self.silence / 2
            looked_at = now
            if stood_still:
                continue  # this host itself did: what the other has sent meanwhile is still to be read
            if quiet_since is None and now - heard_at >= self.silence / 2:
                quiet_since = heard_at
                get_logger().warning(
                    "warning: no sign of life from host %s for %.0f s; after %.0f s (%s) the job ends",
                    self.host,
                    now - heard_at,
                    self.silence,
                    PEER_TIMEOUT,
                )
            elif quiet_since is not None and heard_at > quiet_since:
                get_logger().info(
                    "rendezvous: host %s is heard from again, after %.0f s", self.host, heard_at - quiet_since
                )
                quiet_since = None
