"""Starts the plan's command on this host and forwards its output.

The command is mpirun (on the leader) or the rank wrapper. A thread waits for it and reports Exited. The ranks' output
comes through the run folder. mpirun's own last lines are kept: if it fails before any rank, they are the reason.
"""

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
"""Time for mpirun to end a job after a rank failed or after it announced an abort. It sends SIGTERM to the ranks, kills
them a second later and usually exits within three seconds.
"""
_NO_RANK = (
    "mpirun ended with exit code 0 and started no rank; remove options that only print something, such as --version, "
    "from the custom MPI options of distribution."
)


class LocalRun:
    """The processes of this host: the command that it started, its run folder and its ranks' output."""

    def __init__(self, run_dir: Path, events: Events) -> None:
        self.folder = RunFolder(run_dir)
        self.output: deque[str] = deque(maxlen=40)
        self._events = events
        self._process: subprocess.Popen[str] | None = None
        self._stopped_at: float | None = None
        self._abort_report: FailureReport | None = None
        self._aborted = False  # mpirun failed, or still runs some seconds after it announced an abort
        self._signals: Counter[int] = Counter()  # process id → how many signals it was sent
        self._ended = threading.Event()  # the command has ended, or this host's part of the job
        self._watch: threading.Thread | None = None
        self._relay = Relay(self.folder, lambda data: write_all(sys.stdout.fileno(), data))

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start `command` (mpirun or the rank wrapper). An Exited event follows when it ends."""
        self._process = subprocess.Popen(
            command,
            cwd="/",
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # So Ctrl-C in a terminal reaches the entry only, which forwards it; mpirun would soon kill the ranks.
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
            # A rank's wrapper creates an event file first. Without one no rank ran, so the job must fail.
            code = 1
            save_report(self.folder.path / "failures", FailureReport(_NO_RANK, when=time.time()))
        self._events.put(Exited(code))

    def _lines(self, process: subprocess.Popen[str]) -> Iterator[str]:
        assert process.stdout is not None
        for line in process.stdout:
            self.output.append(line.rstrip())
            if self._abort_report is None and says_abort(line):
                self._abort_report = FailureReport(abort_sentence(list(self.output)), when=time.time())
                threading.Thread(target=self._await_abort, name="abort", daemon=True).start()
            yield line.rstrip()

    def _await_abort(self) -> None:
        """Report LauncherOverdue if mpirun does not end after it announced an abort: it may wait for ranks for ever."""
        if not self._ended.wait(_OVERDUE_SECONDS):
            self._aborted = True
            self._events.put(LauncherOverdue("mpirun announced that it aborts the job", _OVERDUE_SECONDS))

    def watch_failures(self) -> None:
        """From now on, report LauncherOverdue if a rank of this host fails and the job still runs some seconds later.

        Open MPI 5's mpirun has been seen to wait for ever after MPI_Abort.
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
        """Whether the command still runs."""
        return self._process is not None and self._process.poll() is None

    def signal_programs(self, number: int, count: int) -> None:
        """Send a signal to each program of this host that has received fewer than `count` signals.

        mpirun does not get it, because it would kill the programs a second later.
        """
        signalled = {pid for pid, signals in self._signals.items() if signals >= count}
        self._signals.update(self.folder.signal(number, exclude=signalled))

    def stop(self) -> None:
        """End everything on this host within about two seconds: SIGTERM first, then SIGKILL."""
        if self._stopped_at is None:
            self._stopped_at = time.time()
        self.folder.signal(signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_SECONDS
        if self._process is not None:
            self._process.terminate()
        while (self.running or self.folder.programs()) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.folder.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.kill()

    def reports(self) -> list[FailureReport]:
        """The failure reports of this host's ranks, and the reason for mpirun's abort if there was one.

        A rank that failed only because we ended it is marked as an echo.
        """
        since = self._stopped_at
        aborts = [self._abort_report] if self._abort_report and self._aborted else []
        return aborts + [
            replace(report, echo=True)
            if since is not None and report.when >= since and (report.signalled or report.code > 128)
            else report
            for report in self.folder.reports()
        ]

    def close(self) -> None:
        """Forward the last output and remove the folder."""
        self._ended.set()
        if self._watch is not None:
            self._watch.join()
        self._relay.close()
        self.folder.remove()
