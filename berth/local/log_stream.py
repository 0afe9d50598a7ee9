"""Reads a container's log line by line while it runs; several hosts may share one sink."""

import codecs
import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator

from docker.errors import APIError
from docker.models.containers import Container
from requests.exceptions import RequestException
from urllib3.exceptions import HTTPError

_ERROR = "berth: error: "


def lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Whole lines from the engine's chunks, which may end anywhere, even inside a character."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    rest = ""
    for chunk in chunks:
        *whole, rest = (rest + decode(chunk)).split("\n")
        yield from (line.rstrip("\r") for line in whole)
    rest += decode(b"", final=True)
    if rest:
        yield rest


class ErrorLines:
    """A sink that passes every line on to another; `last_error` is the text of the last line `berth: error: …`."""

    def __init__(self, sink: Callable[[str], None]) -> None:
        self.last_error = ""
        self._sink = sink

    def __call__(self, line: str) -> None:
        self._sink(line)
        if line.startswith(_ERROR):
            self.last_error = line.removeprefix(_ERROR)


class LogFollower:
    """Passes every line that a container prints to `sink`, in a thread; create it before the container starts.

    It attaches to the container. The engine's log can lose a last line without a newline (seen with 20.10), and some
    log drivers can't return it. Followers of one run share `lock`, so that only one of them calls `sink` at a time.
    """

    def __init__(self, container: Container, sink: Callable[[str], None], lock: threading.Lock) -> None:
        self._chunks: Iterator[bytes] = container.attach(stream=True, stdout=True, stderr=True)
        self._sink = sink
        self._lock = lock
        self._thread = threading.Thread(target=self._follow, name=f"log of {container.name}", daemon=True)
        self._thread.start()

    def join(self, seconds: float) -> None:
        """Waits until the log's last line was passed on, at most `seconds`."""
        self._thread.join(seconds)

    def _follow(self) -> None:
        received = lines(self._chunks)
        while True:
            try:
                line = next(received, None)
            except (APIError, RequestException, HTTPError, OSError) as error:
                # The run continues without the log: the container's state shows its end.
                self._hand_on(f"(the engine stopped sending this log: {error})")
                return
            if line is None:
                return
            self._hand_on(line)

    def _hand_on(self, line: str) -> None:
        # A closed stdout (`| head`) must not stop us from reading: the container would block on a full pipe.
        with self._lock, contextlib.suppress(OSError):
            self._sink(line)
