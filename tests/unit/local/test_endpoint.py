"""An endpoint's port, and the questions that it is asked."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from berth.common.errors import UserError
from berth.local import endpoint


def test_a_port_that_is_taken_is_refused() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(UserError, match=f"Port {port} is taken"):
            endpoint.require_port(port)
    endpoint.require_port(port)


@pytest.mark.parametrize("port", [-1, 0, 65536, 99999])
def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(UserError, match=f"^{port} is no port: choose one from 1 to 65535\\.$"):
        endpoint.require_port(port)


def test_the_server_listens_on_the_port_that_a_person_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = MagicMock(side_effect=UserError("far enough"))
    for name, there in (("connect", MagicMock()), ("require_port", MagicMock()), ("archive", MagicMock())):
        monkeypatch.setattr(endpoint, name, there)
    session = MagicMock()
    session.__enter__.return_value.create = made
    monkeypatch.setattr(endpoint, "RunSession", lambda *_, **__: session)
    for port in (80, 1023, 18101):
        with (
            pytest.raises(UserError, match="far enough"),
            endpoint.deploy(endpoint.EndpointOptions(tmp_path, "any", port)),
        ):
            pass
        assert made.call_args.args[0].environment == {
            "SAGEMAKER_BIND_TO_PORT": str(port),
            "BERTH_FAILURE_GRACE": "0",  # its log is read, so that nobody waits for what /ping would say
        }
        assert made.call_args.args[0].ports == {f"{port}/tcp": ("127.0.0.1", port)}


class Scripted(BaseHTTPRequestHandler):
    """Answers a question about rain, and refuses any other."""

    def do_POST(self) -> None:
        """One request: the body comes back in the refusal."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        good = body == {"inputs": {"question": "Rain?", "context": "It rains."}}
        self.send_response(200 if good else 400)
        self.end_headers()
        self.wfile.write(b'{"score": 0.5, "start": 3, "end": 8, "answer": "rains"}' if good else b"no rain")

    def log_message(self, *arguments: object) -> None:
        """Stays quiet."""


def test_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with HTTPServer(("127.0.0.1", 0), Scripted) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert endpoint.ask(url, "Rain?", "It rains.") == {"score": 0.5, "start": 3, "end": 8, "answer": "rains"}
        with pytest.raises(UserError, match="The endpoint answered 400: no rain"):
            endpoint.ask(url, "Snow?", "It rains.")
        server.shutdown()
    with pytest.raises(UserError, match="gave no answer"):
        endpoint.ask(url, "Rain?", "It rains.")
