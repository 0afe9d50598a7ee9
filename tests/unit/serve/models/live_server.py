"""A multi-model server in its own process, observed from outside."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_port
from tests.waiting import until

WITHIN = 90.0
"""Time limit of a request and of the process's end, in seconds."""


class LiveServer:
    """`serve` with SAGEMAKER_MULTI_MODEL; models are below `base/models`, and temporary files below `base/tmp`."""

    def __init__(self, base: Path) -> None:
        self.tmp = base / "tmp"
        self.tmp.mkdir(exist_ok=True)
        self.log = base / "log"
        port = free_port()
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "HOME") if name in os.environ}
        variables = {
            "SAGEMAKER_MULTI_MODEL": "true",
            "SAGEMAKER_BASE_DIR": str(base),
            "SAGEMAKER_BIND_TO_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(self.tmp),
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "berth.serve.entry"], env=kept | variables, stdout=log, stderr=log
            )
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            trust_env=False,
            timeout=WITHIN,
            limits=httpx.Limits(max_keepalive_connections=0),  # a kept connection may be closed at a stop
        )
        until(lambda: self.status("GET", "/ping") == 200, "/ping")

    def ask(self, method: str, path: str, value: Any = None) -> httpx.Response:
        """The answer to one request; `value` is its body."""
        return self.client.request(method, path, **({} if value is None else {"json": value}))

    def status(self, method: str, path: str, value: Any = None) -> int:
        """The status of an answer, 0 if the server can't be reached."""
        try:
            return self.ask(method, path, value).status_code
        except httpx.TransportError:
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            return 0

    def metrics(self) -> dict[str, float]:
        """The numbers at /metrics by name and labels."""
        lines = re.findall(r"^(berth_\S+) (\S+)$", self.ask("GET", "/metrics").text, re.MULTILINE)
        return {name: float(value) for name, value in lines}

    def workers(self) -> dict[str, int]:
        """The ids of worker processes by the name of the model's folder."""
        process_ids = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_text().split("\0")
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            if "berth.serve.workers.process" in words and parent == str(self.process.pid):
                process_ids[Path(words[words.index("berth.serve.workers.process") + 2]).name] = int(entry.name)
        return process_ids

    def scratch(self) -> list[str]:
        """The folders that workers write into."""
        return [path.name for path in self.tmp.glob("berth-models-*/*")]

    def memory(self) -> int:
        """Bytes of memory of the server, without its workers."""
        text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        return 1024 * int(re.findall(r"^Pss:\s+(\d+)", text, re.MULTILINE)[0])

    def terminate(self) -> None:
        """Send SIGTERM, and wait until the server refuses new requests."""
        self.process.send_signal(signal.SIGTERM)
        until(lambda: self.process.poll() is not None or self.status("GET", "/ping") in (0, 503), "a stop")

    def end(self) -> int:
        """The exit code, once the process has ended."""
        try:
            return self.process.wait(WITHIN)
        finally:
            self.kill()

    def kill(self) -> None:
        """Kill the server."""
        self.process.kill()
        self.process.wait()
        self.client.close()
