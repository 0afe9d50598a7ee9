"""A server on loopback that behaves as a test says, for the client of bench/serving/load.py."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

Behaviour = Callable[[BaseHTTPRequestHandler, bytes], None]


class Double(ThreadingHTTPServer):
    """What it was asked, and on how many connections."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, behave: Behaviour) -> None:
        self.connections = 0
        self.asked: list[tuple[str, bytes]] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(handler) -> None:
                super().setup()
                self.connections += 1

            def do_POST(handler) -> None:
                body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
                self.asked.append((handler.path, body))
                behave(handler, body)

            do_GET = do_POST

            def log_message(handler, *_: object) -> None:
                """Nothing: pytest shows enough."""

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])


@pytest.fixture
def serve() -> Iterator[Callable[[Behaviour], Double]]:
    """Starts a double that behaves so."""
    started: list[Double] = []

    def start(behave: Behaviour) -> Double:
        started.append(Double(behave))
        threading.Thread(target=started[-1].serve_forever, args=(0.05,), daemon=True).start()
        return started[-1]

    yield start
    for double in started:
        double.shutdown()
        double.server_close()
