"""The ranks of a job as processes of this machine, as torchrun would start them: no entry, no containers.

A server imports what run_qa needs and forks the ranks, so that a start takes one second instead of ten. When one rank
exits, ranks that still run are killed after a while, as the entry would do.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.jobs.killing import lives
from bench.jobs.run_qa import clean_environment
from bench.jobs.small import RANKS_PER_HOST
from berth.local import opt_ml
from tests.ports import free_port

_OTHERS_END_WITHIN = 20.0
_SERVER = """
import ctypes, json, os, signal, sys
from berth.train.run_qa import program
for line in sys.stdin:
    pids = []
    for rank in json.loads(line):
        pid = os.fork()
        if not pid:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
            os.dup2(os.open(rank["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
            os.dup2(1, 2)
            os.environ.update(rank["environment"])
            program.exit_now(program.main())
        pids.append(pid)
    print(json.dumps(pids), flush=True)
    for pid in pids:
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class RankProcesses:
    """The ranks of one start of a job; see bench.jobs.killing.RunningJob."""

    def __init__(self, server: "Ranks", hosts: list[Path]) -> None:
        self.hosts = hosts
        self.began = time.monotonic()
        self._pids = server.fork(hosts)
        self._codes: list[int] = []
        self._waiting = threading.Thread(target=self._wait, args=(server,), daemon=True)
        self._waiting.start()

    def _wait(self, server: "Ranks") -> None:
        self._codes = [server.next_code() for _ in self._pids]

    @property
    def checkpoints(self) -> Path:
        return self.hosts[0] / "checkpoints"

    def log(self) -> str:
        path = self.hosts[0] / "rank-0.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def running(self) -> bool:
        return self._waiting.is_alive()

    def ranks(self) -> list[int]:
        return [pid for pid in self._pids if lives(pid)]

    def entries(self) -> list[int]:
        return self.ranks()

    def wait(self, limit: float) -> list[int]:
        """The ranks' exit codes. Ranks that run 20 s longer than another one, or `limit` seconds, are killed."""
        deadline = time.monotonic() + limit
        while self.running():
            if any(not lives(pid) for pid in self._pids):
                deadline = min(deadline, time.monotonic() + _OTHERS_END_WITHIN)
            if time.monotonic() > deadline:
                for pid in self._pids:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            self._waiting.join(0.02)
        return self._codes

    def failures(self) -> str:
        """The last lines of every rank's log."""
        logs = sorted(path for host in self.hosts for path in host.glob("rank-*.log"))
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-3000:]}" for path in logs)


class Ranks:
    """The server that forks ranks. channels: folders of this machine."""

    victims: tuple[str, ...] = ("rank", "container")

    def __init__(self, channels: Mapping[str, Path], hyperparameters: Mapping[str, str], hosts: int) -> None:
        self._channels = channels
        self._hyperparameters = {**hyperparameters, "model_name_or_path": str(channels["model"])}
        self._names = opt_ml.host_names(hosts)
        self._server = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            env={**clean_environment(), "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def lay_out(self, folder: Path) -> list[Path]:
        """Create an /opt/ml in `folder` for each host."""
        roots = [folder / name for name in self._names]
        for root in roots:
            config = opt_ml.HostConfig(root.name, self._names, "local", self._hyperparameters, self._channels)
            opt_ml.create_host_folder(root, config)
            for name, source in self._channels.items():
                shutil.rmtree(root / "input/data" / name)
                (root / "input/data" / name).symlink_to(source)
        return roots

    @contextmanager
    def started(self, roots: list[Path]) -> Iterator[RankProcesses]:
        """Fork the ranks; all have exited at the end."""
        job = RankProcesses(self, roots)
        try:
            yield job
        finally:
            job.wait(0)

    def fork(self, roots: list[Path]) -> list[int]:
        """Start the ranks of all hosts and return their process ids."""
        port = free_port()
        world = len(roots) * RANKS_PER_HOST
        ranks = [
            {
                "log": str(root / f"rank-{rank}.log"),
                "environment": {
                    "SAGEMAKER_BASE_DIR": str(root),
                    "SM_CURRENT_HOST": root.name,
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank % RANKS_PER_HOST),
                    "WORLD_SIZE": str(world),
                    "LOCAL_WORLD_SIZE": str(RANKS_PER_HOST),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(port),
                    "BERTH_BACKEND": "gloo",
                },
            }
            for rank, root in enumerate(root for root in roots for _ in range(RANKS_PER_HOST))
        ]
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(ranks) + "\n")
        self._server.stdin.flush()
        pids: list[int] = json.loads(self._server.stdout.readline())
        return pids

    def next_code(self) -> int:
        """Wait for the next rank and return its exit code."""
        assert self._server.stdout is not None
        return int(self._server.stdout.readline())

    def close(self) -> None:
        """Stop the server."""
        self._server.kill()
        self._server.communicate()
