"""One rendezvous connection: JSON lines over TCP, with heartbeats in both directions.

Each side sends a beat every second. The connection ends, and Lost is reported once, if receiving or sending a message
takes longer than `silence` seconds, if the connection is closed, or if a line is not a message
(berth.train.hosts.messages). Received messages are put on the host's event queue.

The threads that send beats and listen do not log: a slow reader of the log would block them, although the host is
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
    """Messages on a socket. `timeout`: seconds for a whole message, however slowly its bytes arrive."""

    def __init__(self, sock: socket.socket, timeout: float) -> None:
        self._socket = sock
        self._buffer = bytearray()
        self._sending = threading.Lock()
        self._ended = "the connection was closed"
        self._timeout = timeout
        sock.settimeout(timeout)

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message. WireError if that fails."""
        line = encode(kind, fields)
        try:
            with self._sending:
                self._socket.sendall(line)
        except TimeoutError as error:
            # Part of the line may be sent, so nothing after it could be read. Close; the receiving thread reports this.
            self._ended = f"it read nothing for {self._timeout:.0f} s"
            self.close()
            raise WireError(self._ended) from error
        except OSError as error:
            raise WireError(str(error)) from error

    def receive(self) -> tuple[str, dict[str, Any]]:
        """Kind and fields of the next message. WireError if none arrives in time, or an invalid one."""
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
        """Whether data arrives in time. Uses poll, because the socket's own time-out applies to writes."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))

    def set_timeout(self, seconds: float) -> None:
        """Set how long a message may take, in each direction."""
        self._timeout = seconds
        self._socket.settimeout(seconds)

    def addresses(self) -> tuple[str, str]:
        """This side's IP address on the connection, and the other side's."""
        return str(self._socket.getsockname()[0]), str(self._socket.getpeername()[0])

    def close(self) -> None:
        """Close, so that the other side notices at once."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class HostConnection:
    """A connection to `host` after the greeting: sends beats in the background, and puts received messages on `events`.

    `silence`: seconds without a message after which the other side counts as lost.
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
        """Start to listen and to send beats, the first one at once."""
        try:
            for work in (self._listen, self._send_beats):
                threading.Thread(target=self._run, args=(work,), name=f"rendezvous {self.host}", daemon=True).start()
        except RuntimeError as error:
            self._lose(f"this host can start no more threads ({error})")

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message. The listening thread reports a failed connection, not this method."""
        with contextlib.suppress(WireError):
            self._lines.send(kind, **fields)

    def close(self) -> None:
        """Close the connection on purpose, without a Lost event."""
        with self._ending:
            self._closed.set()
        self._lines.close()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except WireError as error:
            self._lose(str(error))
        except Exception as error:  # a bug in berth: without Lost the job would wait for ever
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
