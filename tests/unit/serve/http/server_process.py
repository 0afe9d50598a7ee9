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
    """`serve` in its own process; the model is in `base`/model, as in SageMaker's /opt/ml."""

    def __init__(self, base: Path, port: int, run: Sequence[str], **environment: str) -> None:
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60)
        variables = {"SAGEMAKER_BASE_DIR": str(base), "SAGEMAKER_BIND_TO_PORT": str(port), "OMP_NUM_THREADS": "1"}
        variables["BERTH_GRAPH_DIR"] = str((base / "model").resolve().parent / "graph")
        kept = {key: os.environ[key] for key in ("PATH", "PYTHONPATH", "HOME") if key in os.environ}
        self.process = subprocess.Popen(
            [sys.executable, *run],
            env=kept | variables | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
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
                assert self.process.poll() is None, self.process.communicate()[0]
                assert time.monotonic() < end
            time.sleep(0.1)

    def end(self, seconds: float = 30) -> tuple[int, list[str]]:
        """Wait for the end of the process; returns its exit code and log lines."""
        output, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, output.splitlines()


@contextmanager
def serving(
    base: Path, *arguments: str, port: int | None = None, run: Sequence[str] = ENTRY, **environment: str
) -> Iterator[Server]:
    server = Server(base, port or free_port(), [*run, *arguments], **environment)
    try:
        yield server
    finally:
        server.client.close()
        server.process.kill()
        server.process.communicate()
