"""An endpoint on this machine: its port and variables, its end, and questions to it."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from berth.common.errors import UserError
from berth.local.serve import endpoint
from berth.local.signals import Interrupted
from tests.doubles.http_server import QuietHandler, serving


def test_require_port_refuses_port_in_use() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(UserError, match=f"Port {port} is taken"):
            endpoint.require_port(port)
    endpoint.require_port(port)


@pytest.mark.parametrize("port", [-1, 0, 65536, 99999])
def test_require_port_refuses_invalid_numbers(port: int) -> None:
    with pytest.raises(UserError, match=f"^{port} is not a port: choose one from 1 to 65535\\.$"):
        endpoint.require_port(port)


def test_server_listens_on_the_published_port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(monkeypatch, tmp_path, [], pings=True)
    for port in (80, 1023, 18101):
        with endpoint.deploy(replace(engine.options, port=port)):
            created = engine.session.create.call_args.args[0]
        assert created.environment == {
            "BERTH_PAGE": "off",
            "SAGEMAKER_BIND_TO_PORT": str(port),
            "BERTH_FAILURE_GRACE": "0",  # the reason is read from the log, so the server need not stay up for /ping
        }
        assert created.ports == {f"{port}/tcp": ("127.0.0.1", port)}


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"SAGEMAKER_BIND_TO_PORT": "9000"}, "choose the port with --port"),
        ({"SAGEMAKER_MULTI_MODEL": "true"}, "serves a single model: serve/README.md"),
    ],
)
def test_require_variables_refuses_port_and_multi_model(environment: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        endpoint.require_variables(environment)
    endpoint.require_variables({"SAGEMAKER_MULTI_MODEL": "false", "BERTH_LOG_FORMAT": "json"})


class Engine:
    """A session whose container prints `log`. pings: whether /ping answers; if not, the container has ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: list[str], *, pings: bool) -> None:
        self.session = MagicMock(killed=[])
        self.session.__enter__.return_value = self.session
        self.session.scratch = tmp_path / "scratch"
        self.session.create.return_value = self.container = MagicMock(status="running" if pings else "exited")
        self.container.attach.side_effect = lambda **_: self.lines(log)
        self.container.attrs = {"State": {"ExitCode": 1}}
        self.grace = 0.0
        self.is_looked_at = threading.Event()
        self.container.reload.side_effect = self.is_looked_at.set

        def made(*_: object, stop_grace: float, **__: object) -> MagicMock:
            self.grace = stop_grace
            return self.session

        monkeypatch.setattr(endpoint, "connect", MagicMock())
        monkeypatch.setattr(endpoint, "require_port", MagicMock())
        monkeypatch.setattr(endpoint, "RunSession", made)
        monkeypatch.setattr(endpoint, "_ping", lambda _: {} if pings else None)
        (tmp_path / "model/code").mkdir(parents=True)
        (tmp_path / "model/code/inference.py").write_text("def model_fn(folder): ...")
        self.options = endpoint.EndpointOptions(tmp_path / "model", "any", environment={"BERTH_PAGE": "off"})

    def lines(self, log: list[str]) -> Iterator[bytes]:
        """The log as a slow engine sends it: after it was asked whether the container has ended."""
        self.is_looked_at.wait(10)
        time.sleep(0.2)
        for line in log:
            yield f"{line}\n".encode()


def test_error_of_server_that_ends_is_its_last_error_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = "model_fn of the model's inference.py raised RuntimeError: no"
    log = ["berth: error: the model's own code failed", "Traceback …", f"berth: error: {last}", "berth: stopped"]
    engine = Engine(monkeypatch, tmp_path, log, pings=False)
    with pytest.raises(UserError) as refused:
        endpoint.serve_until_interrupted(engine.options, log=lambda _: None, say=lambda _: None)
    assert str(refused.value) == f"The container ended with exit code 1 before it could answer: {last}"


@pytest.mark.parametrize("killed", [True, False])
def test_stop_has_30_s_and_fails_if_the_server_was_killed(
    killed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(monkeypatch, tmp_path, [], pings=True)
    engine.session.interrupts.wait.side_effect = Interrupted(2)
    engine.session.stop.side_effect = lambda: engine.session.killed.extend(["algo-1"] * killed)
    if killed:
        with pytest.raises(UserError, match="killed before it ended: requests in progress were cut off") as refused:
            endpoint.serve_until_interrupted(engine.options, say=lambda _: None)
        assert refused.value.exit_code == 137
    else:
        assert endpoint.serve_until_interrupted(engine.options, say=lambda _: None) == 0
    assert engine.grace == 30.0
    assert engine.session.create.call_args.args[0].environment["BERTH_PAGE"] == "off"


@pytest.mark.parametrize(
    ("environment", "files", "accepted"),
    [
        ({"SAGEMAKER_SUBMIT_DIRECTORY": "s3://bucket/code.tar.gz"}, ["weights.bin"], True),
        ({"HF_MODEL_ID": "a/b"}, [], True),
        ({"HF_MODEL_ID": "a/b"}, ["weights.bin"], False),
        ({}, [], False),
    ],
)
def test_folder_is_not_checked_if_the_image_downloads_code_or_model(
    environment: dict[str, str], files: list[str], accepted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(monkeypatch, tmp_path, [], pings=False)
    folder = tmp_path / "other"
    folder.mkdir()
    for name in files:
        (folder / name).touch()
    options = replace(engine.options, model=folder, environment=environment)
    with pytest.raises(UserError, match="before it could answer" if accepted else f"{folder} "):
        endpoint.serve_until_interrupted(options, log=lambda _: None, say=lambda _: None)


@pytest.mark.parametrize(
    ("ping", "request_line"),
    [
        ({"status": "ready", "precision": "fp32"}, '-d \'{"inputs": {"question": '),
        ({"status": "ready", "handler": "the model's own"}, "--data-binary @FILE -H 'Content-Type: TYPE'"),
    ],
)
def test_ready_text_has_a_request_for_the_model_or_its_handler(
    ping: dict[str, str], request_line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(monkeypatch, tmp_path, [], pings=True)
    engine.session.interrupts.wait.side_effect = Interrupted(2)
    monkeypatch.setattr(endpoint, "_ping", lambda _: ping)
    printed: list[str] = []
    endpoint.serve_until_interrupted(engine.options, say=printed.append)
    (ready,) = [line for line in printed if line.startswith("Ready at http://127.0.0.1:")]
    assert request_line in ready.splitlines()[1]
    assert "/invocations" in ready.splitlines()[1]


class Scripted(QuietHandler):
    """An endpoint that answers one question, and any other with status 400."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body == {"inputs": {"question": "Rain?", "context": "It rains."}}:
            self.answer(200, b'{"score": 0.5, "start": 3, "end": 8, "answer": "rains"}')
        else:
            self.answer(400, b"no rain")


def test_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with serving(Scripted) as url:
        assert endpoint.ask(url, "Rain?", "It rains.") == {"score": 0.5, "start": 3, "end": 8, "answer": "rains"}
        with pytest.raises(UserError, match="The endpoint answered 400: no rain"):
            endpoint.ask(url, "Snow?", "It rains.")
    with pytest.raises(UserError, match="gave no answer"):
        endpoint.ask(url, "Rain?", "It rains.")
