"""The folder that a host's entry shares with its rank wrappers: the same path on every host, readable by us only.

program.json     what every rank runs, with this host's environment (mpirun does not pass it on)
pids/<n>         the process id of a program, for signals; removed when the program has ended
failures/        one report per failed rank
ends/<n>/        how each Python process of a rank ended (berth.train.startup.python_end)
events/<n>       what a rank did to train together with the others (berth.train.startup.rank_events)
output           a FIFO into which wrappers write whole lines; the entry copies them to this host's log
work/            an empty folder, the working directory of run_qa
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from berth.runtime.hints.program import PackageNote
from berth.train.failures import ends
from berth.train.failures.ends import PythonEnd
from berth.train.failures.failure import FailureReport
from berth.train.startup.rank_events import read_events

RUN_FOLDER = "/run/berth"
_FIFO_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Program:
    """What a wrapper runs.

    world_size, ranks_per_host: 0 for a program that runs once per host, without ranks. shell: signals go to the whole
    process group, because a shell would exit and leave its child running. alone: the job has no other rank or host, so
    a failure need not name the place. package_note: which of the image's packages the program's requirements replaced.
    """

    command: tuple[str, ...]
    cwd: str
    environment: Mapping[str, str]
    host: str
    code_dir: str
    name: str
    world_size: int
    ranks_per_host: int
    prefix_other_ranks: bool
    shell: bool
    alone: bool = True
    package_note: PackageNote | None = None


class RunFolder:
    """The entry's side of the folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True, mode=0o700)
        for name in ("pids", "failures", "events", "ends", "work"):
            (path / name).mkdir()
        os.mkfifo(path / "output", 0o600)

    @property
    def work(self) -> Path:
        """An empty folder, the working directory of run_qa."""
        return self.path / "work"

    def write_program(self, program: Program) -> None:
        """Write program.json for the wrappers. Only we may read it: the environment may contain credentials."""
        path = self.path / "program.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(program)), "utf-8")

    def reports(self) -> list[FailureReport]:
        """The failures on this host so far. No report is half-written, because each is renamed into place."""
        paths = sorted((self.path / "failures").glob("rank-*.json"))
        return [FailureReport.from_fields(json.loads(path.read_text("utf-8"))) for path in paths]

    def events(self) -> list[list[str]]:
        """What each rank of this host did to train together with the others."""
        return read_events(self.path / "events")

    def failed_children(self) -> list[PythonEnd]:
        """Python child processes on this host that failed below a program that ended well, by time."""
        failed = [end for path in (self.path / "ends").iterdir() for end in ends.read(path).failed_children(0)]
        return sorted(failed, key=lambda end: end.when)

    def programs(self) -> list[tuple[int, bool]]:
        """The running programs: process id, and whether signals go to the whole process group."""
        programs = []
        for path in (self.path / "pids").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid, _, kind = path.read_text("utf-8").partition(" ")
                programs.append((int(pid), kind == "group"))
        return programs

    def signal(self, number: int, exclude: Collection[int] = ()) -> list[int]:
        """Send a signal to this host's programs, except the process ids in `exclude`; returns the ids that got it."""
        sent = []
        for pid, group in self.programs():
            if pid in exclude:
                continue
            with contextlib.suppress(OSError):
                # SIGKILL also ends children. A request to stop is for the program itself, not for its data loaders.
                (os.killpg if group or number == signal.SIGKILL else os.kill)(pid, number)
                sent.append(pid)
        return sent

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.path, ignore_errors=True)


class Relay:
    """Copies this host's output from the FIFO to `write` until it is closed."""

    def __init__(self, folder: RunFolder, write: Callable[[bytes], None]) -> None:
        # Opening a FIFO waits for its other side, except with O_NONBLOCK.
        self._reader = os.open(folder.path / "output", os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(self._reader, True)
        # While this is open, a read does not return the end when no rank has the FIFO open.
        self._writer = os.open(folder.path / "output", os.O_WRONLY)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._reader, fcntl.F_SETPIPE_SZ, _FIFO_BYTES)
        self._write = write
        self._thread = threading.Thread(target=self._copy, name="output", daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        rest = b""
        while data := os.read(self._reader, 65536):
            lines, newline, rest = (rest + data).rpartition(b"\n")
            if newline:
                self._write(lines + newline)
        if rest:
            self._write(rest)

    def close(self) -> None:
        """Copy the rest of the pipe and stop. Call this after the ranks have ended."""
        os.close(self._writer)
        self._thread.join(timeout=5)
        os.close(self._reader)


def read_program(folder: Path) -> Program:
    """The wrapper's side: read program.json."""
    fields: dict[str, Any] = json.loads((folder / "program.json").read_text("utf-8"))
    note = fields["package_note"]
    fields["package_note"] = PackageNote(note["text"], tuple(note["modules"])) if note else None
    return Program(**{**fields, "command": tuple(fields["command"])})


class LineOutput:
    """The wrapper's side of the FIFO: writes whole lines, one writer on this host at a time.

    If there is no FIFO it writes to this process' stdout.
    """

    def __init__(self, folder: Path) -> None:
        fifo = folder / "output"
        self._descriptor = os.open(fifo, os.O_WRONLY) if fifo.exists() else os.dup(1)
        self._lock = os.open(folder / "output.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self._threads = threading.Lock()

    def write(self, line: bytes) -> None:
        """Write one line (with its newline). The lock keeps it whole: a pipe guarantees that only up to 4096 bytes."""
        with self._threads:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)
