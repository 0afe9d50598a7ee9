"""An endpoint on this machine: the inference image serves a model on a loopback port until interrupted."""

import http.client
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docker.models.containers import Container

from berth.common.engine import connect
from berth.common.errors import UserError
from berth.local import archive, opt_ml
from berth.local.log_stream import ErrorLines, LogFollower
from berth.local.session import ContainerSpec, RunSession, bind, engine_errors, is_running, require_gpus
from berth.local.signals import Interrupted

_LOOPBACK = "127.0.0.1"
_PORT_INSIDE = 8080
_BIND_TO_PORT = "SAGEMAKER_BIND_TO_PORT"
_FAILURE_GRACE = "BERTH_FAILURE_GRACE"
_MULTI_MODEL = "SAGEMAKER_MULTI_MODEL"
# Variables that let the image download a handler, or a model if the folder is empty: only the image can check those.
_SUBMIT_DIRECTORY = "SAGEMAKER_SUBMIT_DIRECTORY"
_HUB_MODEL = "HF_MODEL_ID"
# SageMaker's time between SIGTERM and SIGKILL for an endpoint's container.
STOP_GRACE = 30.0
_KILLED = 137
_LOG_GRACE = 10.0
_LAST_PORT = 65535
_ANY_PORT = 0
_POLL_SECONDS = 0.25
_PROGRESS_SECONDS = 5.0
# Without the environment's proxy, which can't reach our loopback address.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A served model: its address (`http://127.0.0.1:PORT`), its run and its container."""

    url: str
    session: RunSession
    container: Container

    def wait_for_end(self) -> int:
        """Waits until the container ends, and returns its exit code. Raises Interrupted after a signal."""
        while is_running(self.container):
            self.session.interrupts.wait(_POLL_SECONDS)
        return int(self.container.attrs["State"]["ExitCode"])


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """What to serve, and how. model: a folder or model.tar.gz; port: on the loopback address, None for a free one;
    timeout: seconds until /ping must answer.
    """

    model: Path
    image: str
    port: int | None = 8080
    environment: Mapping[str, str] = field(default_factory=dict)
    gpus: bool = False
    timeout: float = 300.0


def serve_until_interrupted(
    options: EndpointOptions, *, log: Callable[[str], None] = print, say: Callable[[str], None] = print
) -> int:
    """Serves a model on 127.0.0.1 until interrupted; returns the exit code.

    0 after Ctrl-C or SIGTERM, the normal end of a server. If the container ends by itself: its exit code, 1 in place of
    0. Raises UserError if the model can't be served, or if the server had to be killed and so cut off requests.
    """
    endpoint = None
    try:
        with deploy(options, log=log, say=say) as endpoint:
            say(ready_text(endpoint.url, _ping(endpoint.url) or {}))
            code = endpoint.wait_for_end()
            say(f"The container ended by itself with exit code {code}.")
            return code or 1
    except Interrupted:
        if endpoint is not None and endpoint.session.killed:
            raise UserError(
                "the server was killed before it ended: requests in progress were cut off.", _KILLED
            ) from None
        return 0


@contextmanager
def deploy(
    options: EndpointOptions, *, log: Callable[[str], None] = print, say: Callable[[str], None] = print
) -> Iterator[Endpoint]:
    """Serves a model for a `with` block, which is entered when /ping answers 200.

    Signals don't interrupt the block: check them with `endpoint.session.interrupts.check()` or `.wait(seconds)`.
    """
    if options.port is not None:
        require_port(options.port)
    require_variables(options.environment)
    with engine_errors():
        client = connect()
        if options.gpus:
            require_gpus(client)
        with RunSession(client, options.image, say=say, stop_grace=STOP_GRACE) as session:
            folder = archive.model_folder(options.model, session.scratch)
            if not _is_downloaded(folder, options.environment):
                archive.check_servable(folder, options.model)
            container_port = _PORT_INSIDE if options.port is None else options.port
            container = session.create(_container(options, folder, container_port))
            lines = ErrorLines(log)
            follower = LogFollower(container, lines, threading.Lock())
            session.start(container)
            try:
                container.reload()
                published = container.ports.get(f"{container_port}/tcp") or [{"HostPort": str(options.port)}]
                endpoint = Endpoint(f"http://{_LOOPBACK}:{published[0]['HostPort']}", session, container)

                def reason() -> str:
                    follower.join(_LOG_GRACE)
                    return lines.last_error or "see its log above."

                _wait_for_ping(endpoint, options.timeout, reason)
                yield endpoint
            finally:
                session.stop()
                follower.join(_LOG_GRACE)


def _is_downloaded(folder: Path, environment: Mapping[str, str]) -> bool:
    """Whether the server downloads its handler, or its model, by the server's own rules."""
    if environment.get(_SUBMIT_DIRECTORY, "").strip():
        return True
    return bool(environment.get(_HUB_MODEL, "").strip()) and not any(folder.iterdir())


def _container(options: EndpointOptions, folder: Path, container_port: int) -> ContainerSpec:
    """The server's container, with the model in `folder`, on the port `inside`."""
    return ContainerSpec(
        "algo-1",
        command=["serve"],
        mounts=[bind(f"{opt_ml.ROOT}/model", folder, read_only=True)],
        # The same port inside and outside, so that the server's log names the user's port. A server that can't load its
        # model need not stay up to give the reason on /ping: we read its log.
        environment={_BIND_TO_PORT: str(container_port), _FAILURE_GRACE: "0", **options.environment},
        ports={f"{container_port}/tcp": (_LOOPBACK, options.port or _ANY_PORT)},
        gpus=options.gpus,
    )


def require_port(port: int) -> None:
    """UserError for an invalid port, and for one that is taken or reserved for root on the loopback address."""
    if not 1 <= port <= _LAST_PORT:
        raise UserError(f"{port} is not a port: choose one from 1 to {_LAST_PORT}.")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_LOOPBACK, port))
        except PermissionError:
            raise UserError(f"Port {port} is for root only here: choose another with --port, such as 8080.") from None
        except OSError:
            raise UserError(f"Port {port} is taken: choose another with --port, or end what listens there.") from None


def require_variables(environment: Mapping[str, str]) -> None:
    """UserError for variables that would change the server's port or mode."""
    if _BIND_TO_PORT in environment:
        raise UserError(f"-e {_BIND_TO_PORT} can't be set: choose the port with --port.")
    if environment.get(_MULTI_MODEL, "").strip().lower() == "true":
        raise UserError(
            f"-e {_MULTI_MODEL}: `run serve` serves a single model: serve/README.md has a `docker run` line for many."
        )


def ready_text(url: str, ping: Mapping[str, Any]) -> str:
    """The message when the endpoint is ready, with a request to paste. ping: its answer, which names the handler."""
    opening = f"Ready at {url}; Ctrl-C ends it."
    if "handler" in ping:
        advice = (
            "The model's own code answers: send it FILE, which holds what its input_fn or predict_fn reads, of TYPE:"
        )
        return f"{opening} {advice}\ncurl -s --data-binary @FILE -H 'Content-Type: TYPE' {url}/invocations"
    body = {"inputs": {"question": "What is used for inference?", "context": "This model is used with sagemaker."}}
    request = f"curl -s {url}/invocations -H 'Content-Type: application/json' -d '{json.dumps(body)}'"
    return f"{opening} Open it in a browser, or ask it a question:\n{request}"


def ask(url: str, question: str, context: str, timeout: float = 60.0) -> dict[str, Any]:
    """The endpoint's answer: {"score", "start", "end", "answer"}; UserError with its message if there is none."""
    body = json.dumps({"inputs": {"question": question, "context": context}}).encode()
    request = urllib.request.Request(f"{url}/invocations", body, {"Content-Type": "application/json"})
    try:
        with _DIRECT.open(request, timeout=timeout) as response:
            answer: dict[str, Any] = json.load(response)
    except urllib.error.HTTPError as error:
        raise UserError(
            f"The endpoint answered {error.code}: {error.read().decode(errors='replace').strip()}"
        ) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise UserError(f"The endpoint at {url} gave no answer ({error}): look at its log above.") from None
    return answer


def _wait_for_ping(endpoint: Endpoint, timeout: float, reason: Callable[[], str]) -> None:
    """Waits until /ping answers 200, with a line of progress every few seconds. reason: why the container has ended."""
    began = time.monotonic()
    last_line_at = began
    while _ping(endpoint.url) is None:
        if not is_running(endpoint.container):
            code = endpoint.container.attrs["State"]["ExitCode"]
            raise UserError(f"The container ended with exit code {code} before it could answer: {reason()}")
        now = time.monotonic()
        if now - began > timeout:
            raise UserError(f"/ping gave no 200 within {timeout:.0f} s: look at the log above, or allow it more time.")
        if now - last_line_at > _PROGRESS_SECONDS:
            last_line_at = now
            endpoint.session.say(f"Waiting for the model to answer /ping ({now - began:.0f} s)")
        endpoint.session.interrupts.wait(_POLL_SECONDS)


def _ping(url: str) -> dict[str, Any] | None:
    """The answer of /ping if the endpoint is ready; None if not."""
    try:
        with _DIRECT.open(f"{url}/ping", timeout=2.0) as response:
            body = response.read()
    except (OSError, http.client.HTTPException):
        return None
    try:
        found = json.loads(body)
    except ValueError:  # a user's own image may answer anything
        return {}
    return found if isinstance(found, dict) else {}
