"""The server in its own process."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.ports import free_port

ENTRY = ("-m", "berth.serve.entry")


class Server:
    """`serve` in its own process. The model is in `base`/model, as in SageMaker's /opt/ml; the log is in `base`/log."""

    def __init__(self, base: Path, port: int, run: Sequence[str] = ENTRY, **environment: str) -> None:
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            trust_env=False,
            timeout=90,
            limits=httpx.Limits(max_keepalive_connections=0),  # a kept connection may be closed at a stop
        )
        variables = {"SAGEMAKER_BASE_DIR": str(base), "SAGEMAKER_BIND_TO_PORT": str(port), "OMP_NUM_THREADS": "1"}
        variables["BERTH_GRAPH_DIR"] = str((base / "model").resolve().parent / "graph")
        kept = {key: os.environ[key] for key in ("PATH", "PYTHONPATH", "HOME") if key in os.environ}
        self.log = base / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, *run], env=kept | variables | environment, stdout=log, stderr=log
            )

    def wait_for(self, path: str, status: int, seconds: float = 60) -> httpx.Response:
        """The first answer with this status; after `seconds` the last answer."""
        end = time.monotonic() + seconds
        while True:
            try:
                response = self.client.get(path)
                if response.status_code == status or time.monotonic() > end:
                    return response
            except httpx.TransportError:
                assert self.process.poll() is None, self.log.read_text()
                assert time.monotonic() < end
            time.sleep(0.1)

    def end(self, seconds: float = 90) -> tuple[int, list[str]]:
        """Wait for the end of the process; returns its exit code and log lines."""
        return self.process.wait(seconds), self.log.read_text().splitlines()

    def kill(self) -> None:
        """Kill the process if it still runs."""
        self.process.kill()
        self.process.wait()
        self.client.close()


@contextmanager
def serving(
    base: Path, *arguments: str, port: int | None = None, run: Sequence[str] = ENTRY, **environment: str
) -> Iterator[Server]:
    server = Server(base, port or free_port(), [*run, *arguments], **environment)
    try:
        yield server
    finally:
        server.kill()
