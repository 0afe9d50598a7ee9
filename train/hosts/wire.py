"""One rendezvous connection: JSON lines over TCP, with a sign of life in both directions.

Each side sends a beat every second. Silence for `silence` seconds, which is the time that a whole message may take, a
closed connection or a line that is no message (berth.train.hosts.messages) is reported once as Lost, and ends the
connection. What arrives is put on the host's event queue.

The threads that beat and listen write nothing to the log: whoever reads it may be slow, and a host whose log is full is
alive.
"""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from berth.train.hosts.events import Events, Lost, Message
from berth.train.hosts.messages import MAX_LINE_BYTES, WireError, decode, encode

HEARTBEAT_SECONDS = 1.0
DEFAULT_SILENCE_SECONDS = 60.0  # BERTH_PEER_TIMEOUT sets another (berth/contract/launch_options.py)


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

    def addresses(self) -> tuple[str, str]:
        """The IP addresses of this side, as the other sees it, and of the other side."""
        return str(self._socket.getsockname()[0]), str(self._socket.getpeername()[0])

    def close(self) -> None:
        """Close; the other side notices at once."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class HostConnection:
    """A greeted connection to `host`: beats in the background, and puts what arrives on `events`.

    `silence`: seconds without a message after which the other side is lost.
    """

    def __init__(self, lines: LineSocket, host: str, events: Events, silence: float) -> None:
        self.host = host
        self.silence = silence
        self.own_address, self.address = lines.addresses()
        self._lines = lines
        self._events = events
        self._ending = threading.Lock()
        self._closed = threading.Event()
        lines.set_timeout(silence)

    @property
    def closed(self) -> bool:
        """Whether the connection has ended, on purpose or not."""
        return self._closed.is_set()

    def start(self) -> None:
        """Begin to listen and to beat; the first beat goes at once."""
        try:
            for work in (self._listen, self._send_beats):
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
            if kind != "beat":
                self._events.put(Message(self.host, kind, fields))

    def _send_beats(self) -> None:
        while not self._closed.is_set():
            self.send("beat")
            self._closed.wait(HEARTBEAT_SECONDS)
