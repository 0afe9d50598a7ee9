"""The running server: its signals and the way it ends.

Order of a start (berth.serve.entry): take the port, so that a taken one is said before anything slow, start the
workers, and import this, which takes as long as they do; listen. /ping answers 503 with the reason from then on.

Order of an end: from SIGTERM or Ctrl-C on, /ping and new requests get 503 at the open port, what was accepted is
finished, and the process exits 0. If the model can't be served, /ping goes on giving the reason for a grace period, so
that a health check (SageMaker's, or local mode's every 5 s) can read it, and then the process exits 1. Staying up would
let local mode poll a server that can never be ready, and a platform that restarts containers never try again; leaving
at once would leave "connection refused" as the only reason that a health check sees.
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

from berth.serve.app import create_app
from berth.serve.connection import WAITS, Connections
from berth.serve.models.registry import ModelRegistry
from berth.serve.service import Service
from berth.serve.settings import ServerSettings
from berth.serve.sockets import QUEUE

log = logging.getLogger(__name__)

# asyncio accepts so many connections in one turn of its loop, and three turns more before the first of them can close
# another: together half of the descriptors that RequestLimits.connections leaves.
ACCEPTED_AT_ONCE = 32
FINISH_WITHIN = 28  # seconds for what is in flight at SIGTERM; SageMaker sends SIGKILL after 30
REFUSE_WITHIN = 1  # seconds to refuse what is not answered by then


class Server(uvicorn.Server):
    """uvicorn's server, with a long queue in the kernel although it accepts only a few connections at once, and an open
    port until what was accepted is answered.
    """

    def __init__(self, config: uvicorn.Config, served: Service | ModelRegistry) -> None:
        super().__init__(config)
        self._served = served
        self._finish_by = math.inf
        """When a stop no longer waits for answers, by the monotonic clock."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen: uvicorn and asyncio have one number for the two."""
        await super().startup(sockets)
        for sock in sockets or []:
            sock.listen(QUEUE)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: stop when everything is answered, or the time for it is over; the second one stops at once."""
        if self._served.stopping:
            super().handle_exit(sig, frame)
            return
        self._finish_by = time.monotonic() + FINISH_WITHIN
        self._served.stop()

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second, in the event loop, which alone counts requests: whether to exit."""
        if self._served.stopping and not (self._served.active and time.monotonic() < self._finish_by):
            self.should_exit = True
        return await super().on_tick(counter)


def run(sock: socket.socket, served: Service | ModelRegistry, chosen: ServerSettings) -> int:
    """Serve at the socket until a signal, or until the model proves unusable and `failure_grace` seconds have passed;
    the exit code. The workers are on their way.
    """
    connections = Connections(create_app(served, chosen), served.limits.connections)
    protocol: Any = connections.connect  # declared as a class
    config = uvicorn.Config(
        connections,
        loop="asyncio",
        http=protocol,
        backlog=ACCEPTED_AT_ONCE,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,  # access_log.py writes a line of its own, and none for /ping
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=WAITS,
        timeout_graceful_shutdown=REFUSE_WITHIN,
    )
    server = Server(config, served)

    def stop_after_grace() -> None:
        timer = threading.Timer(chosen.failure_grace, setattr, (server, "should_exit", True))
        timer.daemon = True
        timer.start()

    # Ours before uvicorn takes the signals over, and again when it hands them back and repeats the one it got: the
    # default there would end the process as killed, or, in process 1 of a container, do nothing at all.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    served.start(stop_after_grace)
    where = sock.getsockname()[1]
    log.info("listening on port %d, workers: %s, %d s for a request", where, served.description, chosen.seconds)
    server.run(sockets=[sock])
    served.close()
    code = 1 if served.failure is not None else 0
    log.info("stopped, exit code %d", code)
    return code
