"""The folder that a host's entry shares with its rank wrappers: same path on every host, readable by us alone.

program.json     what every rank runs, with this host's environment (mpirun carries none of it)
pids/<n>         the process id of a program, for signals; gone when the program has ended
failures/        one report for each rank that failed
ends/<n>/        what each Python of a rank ended with (berth.train.startup.python_end)
events/<n>       what a rank did to train together with the others (berth.train.startup.rank_events)
output           a FIFO into which wrappers write whole lines; the entry copies them to this host's log
work/            an empty folder, the kit's own program's current one
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
from berth.train.failures.failure import FailureReport, load_reports
from berth.train.startup.rank_events import read_events

RUN_FOLDER = "/run/berth"
_FIFO_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Program:
    """What a wrapper runs. `ranks_per_host` and `world_size` are 0 for a program that runs once per host, without
    ranks.

    `shell`: the whole process group gets signals, for a shell would die and leave its child behind. `alone`: the job
    has no other rank or host, so a failure needs not say where it was. `package_note`: what the program's
    requirements.txt replaced in the image.
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
        """An empty folder to run the kit's own program in."""
        return self.path / "work"

    def write_program(self, program: Program) -> None:
        """Tell the wrappers what to run. The environment may hold credentials: the file is ours alone and goes with the
        folder.
        """
        path = self.path / "program.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(program)), "utf-8")

    def reports(self) -> list[FailureReport]:
        """What failed on this host so far."""
        return load_reports(self.path / "failures")

    def events(self) -> list[list[str]]:
        """What each rank of this host did to train together with the others."""
        return read_events(self.path / "events")

    def failed_children(self) -> list[PythonEnd]:
        """Pythons of this host that failed below programs that ended well, the last one last."""
        found = [end for path in (self.path / "ends").iterdir() for end in ends.read(path).failed_children(0)]
        return sorted(found, key=lambda end: end.when)

    def programs(self) -> list[tuple[int, bool]]:
        """Process ids of the programs that run now, and whether a signal goes to the whole group."""
        found = []
        for path in (self.path / "pids").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid, _, kind = path.read_text("utf-8").partition(" ")
                found.append((int(pid), kind == "group"))
        return found

    def signal(self, number: int, but: Collection[int] = ()) -> list[int]:
        """Send a signal to every program of this host, process ids in `but` left out; the ids of those that got it."""
        sent = []
        for pid, group in self.programs():
            if pid in but:
                continue
            with contextlib.suppress(OSError):
                # SIGKILL takes children along; a request to stop is for the program itself, not its data loaders.
                (os.killpg if group or number == signal.SIGKILL else os.kill)(pid, number)
                sent.append(pid)
        return sent

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.path, ignore_errors=True)


class Relay:
    """Copies what this host's ranks write into the FIFO to `write`, until closed."""

    def __init__(self, folder: RunFolder, write: Callable[[bytes], None]) -> None:
        # Opened for reading and writing: never at its end, whether or not a rank has it open.
        self._fifo = os.open(folder.path / "output", os.O_RDWR)
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._fifo, fcntl.F_SETPIPE_SZ, _FIFO_BYTES)
        self._write = write
        self._rest = b""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._copy, name="output", daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        marker = _END
        while True:
            data = self._rest + os.read(self._fifo, 65536)
            if marker in data and self._end.is_set():
                data = data.replace(marker, b"")
                if data:
                    self._write(data)
                return
            cut = data.rfind(b"\n") + 1
            self._rest = data[cut:]
            if cut:
                self._write(data[:cut])

    def close(self) -> None:
        """Copy what is still in the pipe and stop; call it when the ranks have ended."""
        self._end.set()
        os.write(self._fifo, _END)
        self._thread.join(timeout=5)
        os.close(self._fifo)


# What tells the copying thread that nothing comes after it; no text contains NUL bytes.
_END = b"\0berth end\0\n"


def read_program(folder: Path) -> Program:
    """The wrapper's side: what to run."""
    fields: dict[str, Any] = json.loads((folder / "program.json").read_text("utf-8"))
    note = fields["package_note"]
    fields["package_note"] = PackageNote(note["text"], tuple(note["modules"])) if note else None
    return Program(**{**fields, "command": tuple(fields["command"])})


class LineOutput:
    """The wrapper's side of the FIFO: whole lines, one writer at a time on this host. Without a FIFO, this process' own
    stdout.
    """

    def __init__(self, folder: Path) -> None:
        fifo = folder / "output"
        self._descriptor = os.open(fifo, os.O_WRONLY) if fifo.exists() else os.dup(1)
        self._lock = os.open(folder / "output.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self._threads = threading.Lock()

    def write(self, line: bytes) -> None:
        """Write one line (with its newline). A pipe takes 4096 bytes as a whole; the lock does the same for longer
        ones.
        """
        with self._threads:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)
