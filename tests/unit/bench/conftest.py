"""An HTTP server on loopback whose answers a test defines, for the client in bench/serving/load.py."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

Behaviour = Callable[[BaseHTTPRequestHandler, bytes], None]


class FakeServer(ThreadingHTTPServer):
    """Records its requests and counts its connections."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, behave: Behaviour) -> None:
        self.connections = 0
        self.requests: list[tuple[str, bytes]] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(handler) -> None:
                super().setup()
                self.connections += 1

            def do_POST(handler) -> None:
                body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
                self.requests.append((handler.path, body))
                behave(handler, body)

            do_GET = do_POST

            def log_message(handler, *_: object) -> None:
                """Log nothing."""

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])


@pytest.fixture
def serve() -> Iterator[Callable[[Behaviour], FakeServer]]:
    """Starts a server that answers with `behave`."""
    started: list[FakeServer] = []

    def start(behave: Behaviour) -> FakeServer:
        started.append(FakeServer(behave))
        threading.Thread(target=started[-1].serve_forever, args=(0.05,), daemon=True).start()
        return started[-1]

    yield start
    for server in started:
        server.shutdown()
        server.server_close()
