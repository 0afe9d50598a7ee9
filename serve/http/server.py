"""The running server: its signals and how it stops.

Start (berth.serve.entry): open the port first, because a port in use should be reported before anything slow; start
the workers; meanwhile import this module, which is slow too; listen. From then on /ping answers 503 with the reason
until the model is loaded.

Stop: after SIGTERM or Ctrl-C, /ping and new requests get 503, accepted requests are answered, and the process exits 0.
If the model can't be served, /ping reports the reason for a grace period, so that a health check (SageMaker's, or local
mode's every 5 s) can read it; then the process exits 1. If it stayed up, local mode would poll a server that can never
be ready, and a platform that restarts failed containers would not restart it. If it exited at once, a health check
would see only "connection refused".
"""

import logging
import math
import signal
import socket
import threading
import time
from types import FrameType
from typing import Any

import uvicorn

from berth.serve.configuration.settings import ServerSettings
from berth.serve.http.app import create_app
from berth.serve.http.connection import WAIT_SECONDS, Connections
from berth.serve.http.sockets import QUEUE
from berth.serve.models.registry import ModelRegistry
from berth.serve.models.service import Service

log = logging.getLogger(__name__)

# Connections that asyncio accepts in one turn of its loop. Three more turns pass before the first of them can close
# another one. So there may be four times as many above the limit, which take half of the 256 descriptors that
# RequestLimits.connections leaves.
ACCEPTED_AT_ONCE = 32
FINISH_WITHIN = 28  # seconds for accepted requests after SIGTERM; SageMaker sends SIGKILL after 30
REFUSE_WITHIN = 1  # seconds to refuse the requests that are not answered by then


class Server(uvicorn.Server):
    """uvicorn's server with two changes: the kernel's queue of connections is longer than the number accepted at once,
    and the port stays open until all accepted requests are answered.
    """

    def __init__(self, config: uvicorn.Config, served: Service | ModelRegistry) -> None:
        super().__init__(config)
        self._served = served
        self._finish_by = math.inf
        """Monotonic time after which a stop no longer waits for answers."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. uvicorn and asyncio use one number for the kernel's queue and for connections accepted at once."""
        await super().startup(sockets)
        for sock in sockets or []:
            sock.listen(QUEUE)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop when all requests are answered or their time is over; a second signal stops at once."""
        if self._served.stopping:
            super().handle_exit(sig, frame)
            return
        self._finish_by = time.monotonic() + FINISH_WITHIN
        self._served.stop()

    async def on_tick(self, counter: int) -> bool:
        """Whether to exit. uvicorn calls this ten times a second in the event loop, where `active` is counted."""
        if self._served.stopping and not (self._served.active and time.monotonic() < self._finish_by):
            self.should_exit = True
        return await super().on_tick(counter)


def run(sock: socket.socket, served: Service | ModelRegistry, settings: ServerSettings) -> int:
    """Serve at the socket until a signal, or until `failure_grace` seconds after the model turned out to be unusable.

    Returns the exit code. The workers of `served` are already starting.
    """
    connections = Connections(create_app(served, settings), served.limits.connections)
    protocol: Any = connections.connect  # uvicorn's type for it is a class
    config = uvicorn.Config(
        connections,
        loop="asyncio",
        http=protocol,
        backlog=ACCEPTED_AT_ONCE,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,  # access_log.py logs requests, except /ping
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=WAIT_SECONDS,
        timeout_graceful_shutdown=REFUSE_WITHIN,
    )
    server = Server(config, served)

    def stop_after_grace() -> None:
        timer = threading.Timer(settings.failure_grace, setattr, (server, "should_exit", True))
        timer.daemon = True
        timer.start()

    # These handlers act before uvicorn installs its own, and after it has restored them and raised the signal again.
    # Then the default action would kill the process or, in process 1 of a container, do nothing.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    served.start(stop_after_grace)
    port = sock.getsockname()[1]
    log.info("listening on port %d, workers: %s, %d s for a request", port, served.description, settings.seconds)
    server.run(sockets=[sock])
    served.close()
    code = 1 if served.failure is not None else 0
    log.info("stopped, exit code %d", code)
    return code
