"""A multi-model server in its own process, observed from outside."""

import re
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_port
from tests.unit.serve.http.server_process import Server


class LiveServer(Server):
    """`serve` with SAGEMAKER_MULTI_MODEL; models are below `base/models`, and temporary files below `base/tmp`."""

    def __init__(self, base: Path) -> None:
        self.tmp = base / "tmp"
        self.tmp.mkdir(exist_ok=True)
        super().__init__(base, free_port(), SAGEMAKER_MULTI_MODEL="true", TMPDIR=str(self.tmp))
        self.wait_for("/ping", 200)

    def ask(self, method: str, path: str, value: Any = None) -> httpx.Response:
        """The answer to one request; `value` is its body."""
        return self.client.request(method, path, **({} if value is None else {"json": value}))

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
        """Send SIGTERM, and wait until the server refuses new requests or has ended."""
        self.process.send_signal(signal.SIGTERM)
        with suppress(httpx.TransportError):
            while self.ask("GET", "/ping").status_code != 503:
                time.sleep(0.01)
