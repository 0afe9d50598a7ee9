"""An HTTP server on loopback whose answers a test defines, for the client in bench/serving/load.py."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import ThreadingHTTPServer

import pytest

from tests.doubles.http_server import QuietHandler, running

Behaviour = Callable[[QuietHandler, bytes], None]


class FakeServer(ThreadingHTTPServer):
    """Records its requests and counts its connections."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, behave: Behaviour) -> None:
        self.connections = 0
        self.requests: list[tuple[str, bytes]] = []

        class Handler(QuietHandler):
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

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])


@pytest.fixture
def serve() -> Iterator[Callable[[Behaviour], FakeServer]]:
    """Starts a server that answers with `behave`."""
    with ExitStack() as stack:

        def start(behave: Behaviour) -> FakeServer:
            server = FakeServer(behave)
            stack.enter_context(running(server))
            return server

        yield start
