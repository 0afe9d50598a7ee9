"""One rendezvous connection: JSON lines over TCP, with a sign of life in both directions.

Every message is one line of at most MAX_LINE_BYTES. Each side sends a beat every second; silence for `silence` seconds,
or a closed connection, is reported once as Lost. What arrives is put on the host's event queue.
"""

import contextlib
import json
import socket
import threading
from typing import Any

from berth.train.hosts.events import Events, Lost, Message

MAX_LINE_BYTES = 256 * 1024
BEAT_SECONDS = 1.0
SILENCE_SECONDS = 10.0


class WireError(Exception):
    """The other side closed, fell silent or sent something that is no message."""


class LineSocket:
    """Reads and writes messages on a socket; blocking, with the socket's own time-out."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._buffer = bytearray()
        self._sending = threading.Lock()

    def send(self, kind: str, **fields: Any) -> None:
        """Send one message; WireError if the connection is gone."""
        line = json.dumps({"kind": kind, **fields}).encode() + b"\n"
        try:
            with self._sending:
                self._socket.sendall(line)
        except OSError as error:
            raise WireError(str(error)) from error

    def receive(self) -> dict[str, Any]:
        """The next message, a mapping with a text `kind`; WireError if there is none."""
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > MAX_LINE_BYTES:
                raise WireError("a message was too long")
            try:
                data = self._socket.recv(65536)
            except TimeoutError as error:
                raise WireError(f"no sign of life for {self._socket.gettimeout():.0f} s") from error
            except OSError as error:
                raise WireError(str(error)) from error
            if not data:
                raise WireError("the connection was closed")
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            message = json.loads(line)
        except ValueError as error:
            raise WireError("a message was not JSON") from error
        if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
            raise WireError("a message had no kind")
        return message

    def set_timeout(self, seconds: float) -> None:
        """How long a read or write may take."""
        self._socket.settimeout(seconds)

    @property
    def peer_address(self) -> str:
        """The other side's IP address."""
        return str(self._socket.getpeername()[0])

    def close(self) -> None:
        """Close; the other side notices at once."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Connection:
    """A greeted connection to `host`: beats in the background, and puts what arrives on `events`."""

    def __init__(
        self, lines: LineSocket, host: str, events: Events, beat: float = BEAT_SECONDS, silence: float = SILENCE_SECONDS
    ) -> None:
        self.host = host
        self.address = lines.peer_address
        self._lines = lines
        self._events = events
        self._beat = beat
        self._closed = threading.Event()
        lines.set_timeout(silence)

    def start(self) -> None:
        """Begin to listen and to beat."""
        for work in (self._listen, self._send_beats):
            threading.Thread(target=work, name=f"rendezvous {self.host}", daemon=True).start()

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message; a connection that is gone is reported by the listener, not here."""
        with contextlib.suppress(WireError):
            self._lines.send(kind, **fields)

    def close(self) -> None:
        """End the connection on purpose: no Lost is reported."""
        self._closed.set()
        self._lines.close()

    def _listen(self) -> None:
        try:
            while True:
                message = self._lines.receive()
                kind = message.pop("kind")
                if kind != "beat":
                    self._events.put(Message(self.host, kind, message))
        except WireError as error:
            if not self._closed.is_set():
                self._closed.set()
                self._events.put(Lost(self.host, str(error)))

    def _send_beats(self) -> None:
        while not self._closed.wait(self._beat):
            self.send("beat")
