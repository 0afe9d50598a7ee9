"""The leader's listening socket: takes connections and has each greeted in a thread of its own, whatever comes."""

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable

from berth.train.hosts.lookup import plain_address
from berth.train.hosts.wire import LineSocket
from berth.train.log import get_logger

GREETING_SECONDS = 10.0
_LOG_EVERY_SECONDS = 15.0
_PAUSE_SECONDS = 0.2

# What greets a connection from an address. It closes those that it does not `release`, and raises nothing.
Greet = Callable[[LineSocket, str], None]


class Listener:
    """Greets at most `most` connections at once.

    One more takes the place of the oldest from the address that holds the most: who opens many and says nothing keeps
    out nobody else.
    """

    def __init__(self, server: socket.socket, greet: Greet, most: int) -> None:
        self._server = server
        self._greet = greet
        self._most = most
        self._lock = threading.Lock()
        self._greeting: dict[LineSocket, str] = {}  # to addresses, oldest first
        self._closed = threading.Event()
        self._logged_at = float("-inf")

    def start(self) -> None:
        """Begin to take connections."""
        threading.Thread(target=self._accept, name="rendezvous", daemon=True).start()

    def release(self, lines: LineSocket) -> bool:
        """Leave a connection to its greeter for good; False if it had to make room already."""
        with self._lock:
            return self._greeting.pop(lines, None) is not None

    def close(self) -> None:
        """Stop listening, and hang up on whoever is being greeted."""
        self._closed.set()
        # Closing alone does not wake a thread that waits in accept().
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            greeting = list(self._greeting)
        for lines in greeting:
            lines.close()

    def _accept(self) -> None:
        while not self._closed.is_set():
            sock = None
            try:
                sock, address = self._server.accept()
                self._admit(sock, plain_address(address[0]))
            except Exception as error:  # no file descriptor or thread is free, the network is down, the peer has gone
                if sock is not None:
                    sock.close()
                self._log_error(error)
                self._closed.wait(_PAUSE_SECONDS)

    def _admit(self, sock: socket.socket, address: str) -> None:
        lines = LineSocket(sock, GREETING_SECONDS)
        with self._lock:
            if len(self._greeting) >= self._most:
                crowd = Counter(self._greeting.values()).most_common(1)[0][0]
                oldest = next(each for each, theirs in self._greeting.items() if theirs == crowd)
                del self._greeting[oldest]
                oldest.close()
            self._greeting[lines] = address
        try:
            threading.Thread(target=self._run, args=(lines, address), name="greeting", daemon=True).start()
        except BaseException:
            self.release(lines)
            raise

    def _run(self, lines: LineSocket, address: str) -> None:
        try:
            self._greet(lines, address)
        finally:
            self.release(lines)

    def _log_error(self, error: Exception) -> None:
        now = time.monotonic()
        if not self._closed.is_set() and now - self._logged_at >= _LOG_EVERY_SECONDS:
            self._logged_at = now
            get_logger().info("rendezvous: a connection could not be taken (%s); trying again", error)
