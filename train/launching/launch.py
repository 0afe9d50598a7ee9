"""Starts what the plan says on this host and passes on what comes out: the thin part of launching.

mpirun (on the leader) or the rank wrapper itself is one process, waited for by a thread that reports Exited. What ranks
print comes through the run folder; mpirun's own words are kept for the case that it fails before any rank.
"""

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from berth.train.failures.failure import FailureReport, save_report
from berth.train.hosts.events import Events, Exited, LauncherOverdue
from berth.train.hosts.log import get_logger, write_all
from berth.train.launching.runfolder import Relay, RunFolder
from berth.train.planning.mpirun import abort_sentence, says_abort, without_notices

_GRACE_SECONDS = 2.0
_LOOK_EVERY_SECONDS = 1.0
_OVERDUE_SECONDS = 10.0
"""For mpirun to end a job whose rank has failed, or that it aborts. It asks the ranks, kills them a second later and is
gone in three.
"""
_NO_RANK = (
    "mpirun ended with exit code 0 and started no rank; remove what has it print something instead, such as --version, "
    "from the custom MPI options of distribution."
)


class LocalRun:
    """This host's part of the job: its run folder, its ranks' output, what it launched."""

    def __init__(self, run_dir: Path, events: Events) -> None:
        self.folder = RunFolder(run_dir)
        self.output: deque[str] = deque(maxlen=40)
        self._events = events
        self._process: subprocess.Popen[str] | None = None
        self._stopped_at: float | None = None
        self._abort: FailureReport | None = None
        self._aborted = False
        self._signals: Counter[int] = Counter()  # process id → how many it was sent
        self._ended = threading.Event()  # what was started, or this host's part of the job
        self._watch: threading.Thread | None = None
        self._relay = Relay(self.folder, lambda data: write_all(sys.stdout.fileno(), data))

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start `command` (an mpirun line or the rank wrapper); Exited comes when it has ended."""
        self._process = subprocess.Popen(
            command,
            cwd="/",
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # Ctrl-C in a terminal reaches the entry, which tells the programs; mpirun would kill them a second later.
            start_new_session=True,
        )
        threading.Thread(target=self._wait, args=(self._process,), name="launch", daemon=True).start()

    def _wait(self, process: subprocess.Popen[str]) -> None:
        for line in without_notices(self._lines(process)):
            get_logger().info("launcher: %s", line)
        code = process.wait()
        self._ended.set()
        self._aborted = bool(code)
        if code == 0 and not self.folder.events():
            # A rank's wrapper leaves a file as the first thing: nothing was trained, and the job must not end well.
            code = 1
            save_report(self.folder.path / "failures", FailureReport(_NO_RANK, when=time.time()))
        self._events.put(Exited(code))

    def _lines(self, process: subprocess.Popen[str]) -> Iterator[str]:
        assert process.stdout is not None
        for line in process.stdout:
            self.output.append(line.rstrip())
            if self._abort is None and says_abort(line):
                self._abort = FailureReport(abort_sentence(list(self.output)), when=time.time())
                threading.Thread(target=self._await_abort, name="abort", daemon=True).start()
            yield line.rstrip()

    def _await_abort(self) -> None:
        """mpirun says that it aborts the job, and may wait for ever for ranks that wait for each other."""
        if not self._ended.wait(_OVERDUE_SECONDS):
            self._aborted = True
            self._events.put(LauncherOverdue("mpirun said that it aborts the job", _OVERDUE_SECONDS))

    def watch_failures(self) -> None:
        """LauncherOverdue comes when a rank of this host has failed and, some seconds later, the job still runs: an
        mpirun (Open MPI 5's) has been seen to wait for ever after MPI_Abort.
        """
        self._watch = threading.Thread(target=self._await_failure, name="failures", daemon=True)
        self._watch.start()

    def _await_failure(self) -> None:
        while not self.folder.reports():
            if self._ended.wait(_LOOK_EVERY_SECONDS):
                return
        if not self._ended.wait(_OVERDUE_SECONDS):
            self._events.put(LauncherOverdue("a rank failed", _OVERDUE_SECONDS))

    @property
    def running(self) -> bool:
        """Whether what was started has not ended."""
        return self._process is not None and self._process.poll() is None

    def signal_programs(self, number: int, count: int) -> None:
        """Have each of this host's programs get a signal that has had fewer than `count` of them.

        Not mpirun, which would kill them a second later.
        """
        had = {pid for pid, signals in self._signals.items() if signals >= count}
        self._signals.update(self.folder.signal(number, but=had))

    def stop(self) -> None:
        """End everything on this host, within about two seconds: programs asked first, then killed."""
        if self._stopped_at is None:
            self._stopped_at = time.time()
        self.folder.signal(signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_SECONDS
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(OSError):
                self._process.terminate()
        while (self.running or self.folder.programs()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.folder.signal(signal.SIGKILL)
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def reports(self) -> list[FailureReport]:
        """What this host's ranks reported of their failures, and, with the time at which it said so, why mpirun aborts
        the job if it does; that we ended a rank ourselves explains nothing.
        """
        since = self._stopped_at
        of_mpirun = [self._abort] if self._abort and self._aborted else []
        return of_mpirun + [
            replace(report, echo=True)
            if since is not None and report.when >= since and (report.signalled or report.code > 128)
            else report
            for report in self.folder.reports()
        ]

    def close(self) -> None:
        """Pass on the last output and remove the folder."""
        self._ended.set()
        if self._watch is not None:
            self._watch.join()
        self._relay.close()
        self.folder.remove()
