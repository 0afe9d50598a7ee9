"""A double of a Docker engine with a few given answers, such as those of an engine that fails."""

import json
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any

from docker.errors import APIError
from requests import Response

from tests.doubles.http_server import QuietHandler, running

VERSION = {"ApiVersion": "1.43", "MinAPIVersion": "1.24", "Version": "24.0.0", "Components": [{"Name": "Engine"}]}
FAILURE = (500, {"message": "open /var/lib/docker/repositories.json: input/output error"})


def api_error(status: int, explanation: str) -> APIError:
    """The SDK's error for an answer of the engine."""
    response = Response()
    response.status_code, response.url = status, "http+docker://localhost/v1.43/containers/create"
    return APIError("refused", response=response, explanation=explanation)


class EngineDouble(ThreadingHTTPServer):
    """Listens on 127.0.0.1.

    answers: status and JSON by method and path, such as `GET /info`.
    otherwise: status and JSON for any other request.
    output: what its containers print, on stdout and on stderr.
    requests: method and path of every request so far.
    """

    daemon_threads = True

    def __init__(
        self,
        answers: Mapping[str, tuple[int, Any]],
        otherwise: tuple[int, Any] = FAILURE,
        output: tuple[bytes, bytes] = (b"", b""),
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.answers = {"GET /_ping": (200, "OK"), "GET /version": (200, VERSION), **answers}
        self.otherwise, self.output = otherwise, output
        self.requests: list[str] = []
        self.started = threading.Event()

    @property
    def host(self) -> str:
        """The value for DOCKER_HOST."""
        return f"tcp://127.0.0.1:{self.server_port}"


class _Answer(QuietHandler):
    protocol_version = "HTTP/1.1"
    server: EngineDouble

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        if path.startswith("/v1."):
            path = "/" + path.split("/", 2)[2]
        request = f"{self.command} {path}"
        self.server.requests.append(request)
        if request.endswith("/start"):
            self.server.started.set()
        if request.endswith("/attach"):
            return self._attach()
        status, document = self.server.answers.get(request, self.server.otherwise)
        body = document.encode() if isinstance(document, str) else json.dumps(document).encode()
        self.answer(status, b"" if status == 204 else body, {"Content-Type": "application/json"})

    def _attach(self) -> None:
        """The container's output from its start on, in frames, as the engine sends it."""
        self.send_response_only(101, "UPGRADED")
        for name, text in (("Content-Type", "application/vnd.docker.raw-stream"), ("Connection", "Upgrade")):
            self.send_header(name, text)
        self.send_header("Upgrade", "tcp")
        self.end_headers()
        self.wfile.flush()
        if self.server.started.wait(10):
            for stream, text in enumerate(self.server.output, 1):
                self.wfile.write(struct.pack(">BxxxL", stream, len(text)) + text)
        self.close_connection = True

    do_POST = do_DELETE = do_HEAD = do_GET


@contextmanager
def engine_double(
    answers: Mapping[str, tuple[int, Any]] | None = None, otherwise: tuple[int, Any] = FAILURE, output: Any = (b"", b"")
) -> Iterator[EngineDouble]:
    server = EngineDouble(answers or {}, otherwise, output)
    with running(server):
        yield server
