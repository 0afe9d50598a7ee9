"""The running server: its port, its signals and the way it ends.

Order of a start: take the port (so that a taken one is said before anything slow), start the workers, listen. /ping
answers 503 with the reason from the first second on.

Order of an end: from SIGTERM or Ctrl-C on, /ping and new requests get 503 at the open port, what was accepted is
finished, and the process exits 0. If the model can't be served, /ping goes on giving the reason for a grace period, so
that a health check (SageMaker's, or local mode's every 5 s) can read it, and then the process exits 1. Staying up would
let local mode poll a server that can never be ready, and a platform that restarts containers never try again; leaving
at once would leave "connection refused" as the only reason that a health check sees.
"""

import errno
import logging
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from berth.runtime.cpus import model_threads
from berth.serve.app import create_app
from berth.serve.connection import ClientConnection, WaitingConnections
from berth.serve.limits import MEBIBYTE, PAYLOAD, PAYLOAD_VARIABLE, REQUEST_TOKENS, TOKENS_VARIABLE, RequestLimits
from berth.serve.service import Service
from berth.serve.workers.pool import WorkerPool, WorkerSettings

log = logging.getLogger(__name__)

KEEP_ALIVE = 75  # seconds; longer than the idle time of usual proxies, so that it is never the server that closes first
# asyncio accepts so many connections in one turn of its loop, and three turns more before the first of them can close
# another: together half of the descriptors that RequestLimits.connections leaves.
ACCEPTED_AT_ONCE = 32
QUEUE = 2048  # connections that the kernel holds until they are accepted
SECONDS, BATCH_SECONDS = 55, 595  # SageMaker waits for an answer 60 s, and a batch transform for 600 by default
FINISH_WITHIN = 25  # seconds for what is in flight at SIGTERM; SageMaker sends SIGKILL after 30


class SettingError(Exception):
    """An environment variable has a value that can't be used, or a port can't be had; one sentence."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What the environment says."""

    port: int = 8080  # SAGEMAKER_BIND_TO_PORT
    model_dir: Path = Path("/opt/ml/model")  # SAGEMAKER_BASE_DIR + "/model"
    payload: int = PAYLOAD  # bytes; SAGEMAKER_MAX_PAYLOAD_IN_MB
    request_tokens: int = REQUEST_TOKENS  # BERTH_MAX_REQUEST_TOKENS
    failure_grace: int = 10  # seconds; BERTH_FAILURE_GRACE
    workers: int = 0  # SAGEMAKER_MODEL_SERVER_WORKERS; 0: one for each GPU, or one
    seconds: int = 55  # for a request; SAGEMAKER_MODEL_SERVER_TIMEOUT, more in a batch transform


def settings(environ: Mapping[str, str]) -> ServerSettings:
    """The settings in `environ`; SettingError names the variable that can't be used."""

    def number(name: str, default: int, least: int, most: int) -> int:
        text = environ.get(name, "").strip()
        if not text:
            return default
        if not text.isdecimal() or not least <= int(text) <= most:
            raise SettingError(f"{name} is `{text}`: it must be a whole number from {least} to {most}")
        return int(text)

    batch = environ.get("SAGEMAKER_BATCH", "").strip().lower() == "true"
    return ServerSettings(
        port=number("SAGEMAKER_BIND_TO_PORT", 8080, 1, 65535),
        model_dir=Path(environ.get("SAGEMAKER_BASE_DIR") or "/opt/ml") / "model",
        payload=number(PAYLOAD_VARIABLE, PAYLOAD // MEBIBYTE, 1, 1024) * MEBIBYTE,
        request_tokens=number(TOKENS_VARIABLE, REQUEST_TOKENS, 512, 100_000_000),
        failure_grace=number("BERTH_FAILURE_GRACE", 10, 0, 3600),
        workers=number("SAGEMAKER_MODEL_SERVER_WORKERS", 0, 1, 256),
        seconds=number("SAGEMAKER_MODEL_SERVER_TIMEOUT", BATCH_SECONDS if batch else SECONDS, 1, 86_400),
    )


def listen(port: int) -> socket.socket:
    """A listening socket on every IPv4 address; SettingError if the port can't be had."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("0.0.0.0", port))
        sock.listen(QUEUE)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            advice = "stop what listens there or set SAGEMAKER_BIND_TO_PORT"
            raise SettingError(f"port {port} is taken: {advice}") from error
        advice = "set SAGEMAKER_BIND_TO_PORT to another"
        raise SettingError(f"port {port} can't be used ({error.strerror}): {advice}") from error
    return sock


def raise_open_files() -> int:
    """Let this process have as many file descriptors as it may, for each connection is one; how many that are."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def worker_settings(chosen: ServerSettings, gpus: int, threads: int, visible: str | None) -> list[WorkerSettings]:
    """How each worker is started: one for each GPU, or as many as were asked for, which share what there is.

    `threads` are those of this host for models; `visible` is CUDA_VISIBLE_DEVICES, which says what GPU 0 is.
    """
    count = chosen.workers or max(1, gpus)
    share = max(1, threads // count)
    if not gpus:
        return [WorkerSettings(chosen.model_dir, share, "cpu")] * count
    names = visible.split(",") if visible else [str(number) for number in range(gpus)]
    return [
        WorkerSettings(chosen.model_dir, share, "cuda", {"CUDA_VISIBLE_DEVICES": names[number % gpus]})
        for number in range(count)
    ]


class Server(uvicorn.Server):
    """uvicorn's server, with a long queue in the kernel although it accepts only a few connections at once, and an open
    port until what was accepted is answered.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen: uvicorn and asyncio have one number for the two."""
        await super().startup(sockets)
        for sock in sockets or []:
            sock.listen(QUEUE)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: stop when everything is answered, or the time for it is over; the second one stops at once."""
        if self._service.stopping:
            super().handle_exit(sig, frame)
            return
        self._service.stop()

        def finish() -> None:
            deadline = time.monotonic() + FINISH_WITHIN
            while self._service.active and time.monotonic() < deadline:
                time.sleep(0.05)
            self.should_exit = True

        threading.Thread(target=finish, name="stop", daemon=True).start()


def run(chosen: ServerSettings, gpus: int) -> int:
    """Serve until a signal or until the model proves unusable; the exit code. SettingError if the port is not free."""
    sock = listen(chosen.port)
    limits = RequestLimits(
        tokens=chosen.request_tokens,
        payload=chosen.payload,
        open_files=raise_open_files(),
        seconds=chosen.seconds,
    )
    workers = worker_settings(chosen, gpus, model_threads(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    service = Service(WorkerPool(workers, limits), limits)
    protocol: Any = partial(ClientConnection, WaitingConnections(limits))
    config = uvicorn.Config(
        create_app(service),
        loop="asyncio",
        http=protocol,
        backlog=ACCEPTED_AT_ONCE,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,  # app.py writes a line of its own, and none for /ping
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=1,  # when everything is answered, or the time for it is over
    )
    server = Server(config, service)

    def stop_after_grace() -> None:
        timer = threading.Timer(chosen.failure_grace, setattr, (server, "should_exit", True))
        timer.daemon = True
        timer.start()

    # Ours before uvicorn takes the signals over, and again when it hands them back and repeats the one it got: the
    # default there would end the process as killed, or, in process 1 of a container, do nothing at all.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    service.start(stop_after_grace)
    each = f"{workers[0].threads} threads" if workers[0].device == "cpu" else "a GPU"
    log.info("listening on port %d, workers: %d with %s each", chosen.port, len(workers), each)
    server.run(sockets=[sock])
    service.pool.stop()
    code = 1 if service.failure is not None else 0
    log.info("stopped, exit code %d", code)
    return code
