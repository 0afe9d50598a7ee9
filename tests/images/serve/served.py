"""A container that serves, and requests to its published port."""

import json
import socket
import time
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any

from docker.models.containers import Container

READY_WITHIN = 90.0  # seconds
# Reads /proc, because the image has no `ps`.
_FIND_WORKERS = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    try: words = open(f"/proc/{pid}/cmdline").read().split("\\0")
    except OSError: continue
    if "berth.serve.workers.process" in words: print(pid)
"""
_SUM_MEMORY = "cat /proc/[0-9]*/smaps_rollup 2>/dev/null | awk '/^Pss:/ { sum += $2 } END { print sum }'"


class Served:
    """A container that serves, and its port on the loopback address."""

    def __init__(self, container: Container) -> None:
        self.container = container
        container.reload()
        self.address = str(container.attrs["NetworkSettings"]["IPAddress"])
        self.port = int(container.ports["8080/tcp"][0]["HostPort"])

    def ask(self, inputs: Any) -> tuple[int, Any, float]:
        """Status, body and seconds of a POST of these questions."""
        return self.request("/invocations", json.dumps({"inputs": inputs}).encode())

    def ping(self) -> tuple[int, Any, float]:
        """Status, body and seconds of GET /ping."""
        return self.request("/ping")

    def request(self, path: str, body: bytes | None = None) -> tuple[int, Any, float]:
        """Status, body and seconds of a POST, or of a GET if there is no body."""
        began = time.monotonic()
        status, answer, _ = self.exchange("GET" if body is None else "POST", path, body)
        return status, json.loads(answer), time.monotonic() - began

    def exchange(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Status, body and headers of an answer; `content_type` is the header Content-Type."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=90)
        try:
            http_headers = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, http_headers)
            response = connection.getresponse()
            return response.status, response.read(), response.headers
        finally:
            connection.close()

    def connect(self, start: bytes = b"") -> socket.socket:
        """Open a connection and send `start`."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        client.sendall(start)
        return client

    def log(self) -> str:
        """What the container has printed."""
        return str(self.container.logs().decode())

    def run(self, code: str) -> str:
        """Run Python code in the container; returns its output."""
        return self._output("python", "-c", code)

    def workers(self) -> list[int]:
        """The ids of the processes that hold the model, in the container."""
        return [int(pid) for pid in self.run(_FIND_WORKERS).split()]

    def megabytes(self) -> int:
        """Memory of all processes; a page that several share is counted once."""
        return int(self._output("sh", "-c", _SUM_MEMORY)) // 1024

    def _output(self, *command: str) -> str:
        done = self.container.exec_run(["timeout", "60", *command])
        assert done.exit_code == 0, done.output.decode()
        return str(done.output.decode()).strip()

    def wait_until_ready(self) -> None:
        """Wait until /ping answers 200; AssertionError after READY_WITHIN seconds."""
        deadline = time.monotonic() + READY_WITHIN
        while True:
            try:
                if self.ping()[0] == 200:
                    return
            except (OSError, ValueError):
                pass
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.1)
