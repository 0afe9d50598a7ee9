"""Runs one rank's program: `python -m berth.train.launching.rank <run folder>`, started by mpirun or by the entry.

The wrapper reads the program and this host's environment from the run folder, adds the rank's variables and checks the
number of ranks. It forwards the program's output in whole lines, and signals to the program. If the program fails it
writes a report. It exits with the program's code.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from berth.contract.errors import JobError
from berth.contract.words import counted
from berth.runtime import memory
from berth.runtime.codes import exit_code
from berth.runtime.failure_file import FAILURE_FILE_VARIABLE
from berth.runtime.hints.program import ProgramContext
from berth.runtime.rank import Rank
from berth.train.failures import ends, failure
from berth.train.failures.explain import ProgramEnd, explain
from berth.train.failures.failure import FailureReport
from berth.train.failures.native import STOPS
from berth.train.failures.raised import without_rank
from berth.train.failures.start_errors import start_error_sentence
from berth.train.failures.stderr_text import StderrText
from berth.train.launching.environment import rank_environment
from berth.train.launching.line_buffer import LineBuffer
from berth.train.launching.runfolder import LineOutput, Program, read_program
from berth.train.startup.python_end import ENDS_FOLDER
from berth.train.startup.rank_events import EVENTS_FILE_VARIABLE

_PIPE_SECONDS = 2.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


def check_rank(program: Program, rank: Rank | None) -> None:
    """JobError unless mpirun started as many ranks as planned: ranks that train alone would not fail."""
    if not program.world_size:
        return
    if rank is None:
        raise JobError(
            "the rank was started without mpirun's variables; start the job with `train`, not with the rank wrapper."
        )
    if (rank.world_size, rank.local_world_size) != (program.world_size, program.ranks_per_host):
        raise JobError(
            f"mpirun started {counted(rank.world_size, 'rank')}, {rank.local_world_size} on {program.host}, but the "
            f"plan says {program.world_size} with {program.ranks_per_host} on each host; remove custom MPI options "
            "that change the number of processes."
        )


class RankProcess:
    """Runs the program and collects what a failure report needs."""

    def __init__(self, folder: Path, program: Program, rank: Rank | None) -> None:
        self.folder = folder
        self.program = program
        self.rank = rank
        self.number = rank.rank if rank else None
        self.stderr = StderrText()
        self.stdout_last = "", 0.0
        self.signalled_at = 0.0
        self._early_signals: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._output = LineOutput(folder)
        self._prefix = f"[rank {self.number}] ".encode() if program.prefix_other_ranks and self.number else b""
        self._sentence = folder / "failures" / f"sentence-{self.number or 0}"
        self._events = folder / "events" / str(self.number or 0)
        self._ends = folder / "ends" / str(self.number or 0)
        files = {
            FAILURE_FILE_VARIABLE: self._sentence,
            EVENTS_FILE_VARIABLE: self._events,
            ENDS_FOLDER: self._ends,
        }
        self.environment = rank_environment(program, rank, os.environ, files)

    def run(self) -> int:
        """Run the program to its end; returns its exit code as a shell counts it."""
        for number in _FORWARDED:
            signal.signal(number, self._forward)
        # Orphans of the program become children of this process, and `_await_program` reaps them.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        kills = memory.oom_kills()
        pid_file = self.folder / "pids" / str(self.number or 0)
        self._events.touch()
        self._ends.mkdir(exist_ok=True)
        self._process = process = self._start()
        # Signals that came while the program was being started.
        for received in self._early_signals:
            self._forward(received, None)
        pid_file.write_text(f"{process.pid} {'group' if self.program.shell else 'process'}", "utf-8")
        assert process.stdout is not None
        assert process.stderr is not None
        readers = [
            threading.Thread(target=self._pass_on, args=(stream,), kwargs={"keep": keep}, daemon=True)
            for stream, keep in ((process.stdout, False), (process.stderr, True))
        ]
        for reader in readers:
            reader.start()
        code = _await_program(process)
        if self.program.shell and -code in STOPS:
            _await_group(process.pid)
        ended_at = time.time()
        deadline = time.monotonic() + _PIPE_SECONDS
        for reader in readers:
            reader.join(max(0.0, deadline - time.monotonic()))
        # Kill what the program left behind, such as a data loader that holds the pipe: the job would not end.
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        for reader in readers:
            reader.join(0.5)
        if code != 0:
            failure.save_report(
                self.folder / "failures", self._report(code, ended_at, killed_for_memory=memory.oom_kills() > kills)
            )
        # Do this last: for the entry a missing pid file means that the rank has ended and its report is written.
        pid_file.unlink(missing_ok=True)
        return exit_code(code)

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.program.command,
            cwd=self.program.cwd,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A separate group: mpirun signals the wrapper's group, and data loaders must not get the program's signals.
            process_group=0,
            preexec_fn=_die_with_parent,
        )

    def _forward(self, number: int, _frame: object) -> None:
        self.signalled_at = self.signalled_at or time.time()
        if self._process is None:
            self._early_signals.append(number)
        elif self._process.poll() is None:
            with contextlib.suppress(OSError):
                (os.killpg if self.program.shell else os.kill)(self._process.pid, number)

    def _pass_on(self, stream: IO[bytes], *, keep: bool) -> None:
        lines = LineBuffer()
        while data := os.read(stream.fileno(), 65536):
            self._emit(lines.feed(data, time.monotonic()), keep=keep)
        self._emit(lines.end(), keep=keep)

    def _emit(self, lines: Sequence[bytes], *, keep: bool) -> None:
        """Forward lines. `keep`: they are from stderr, and StderrText collects them for a failure report."""
        for line in lines:
            if keep:
                self.stderr.add(without_rank(line.decode("utf-8", "replace")), time.time())
            elif line.strip():
                self.stdout_last = line[:2000].decode("utf-8", "replace"), time.time()
            self._output.write(self._prefix + line + b"\n")

    def _report(self, code: int, ended_at: float, *, killed_for_memory: bool) -> FailureReport:
        written = self._sentence.read_text("utf-8", "replace").strip() if self._sentence.exists() else ""
        assert self._process is not None
        explanation = explain(
            ProgramEnd(
                name=self.program.name,
                who=self._who(),
                pid=self._process.pid,
                code=code,
                ended_at=ended_at,
                ends=ends.read(self._ends),
                stderr=self.stderr,
                context=ProgramContext(
                    Path(self.program.code_dir), self.program.command, self.environment, self.program.package_note
                ),
                signalled_at=self.signalled_at,
                stdout_last=self.stdout_last,
                killed_for_memory=killed_for_memory,
            )
        )
        # The sentence about a signal already names rank and host.
        where = "" if self.program.alone or self._who() in explanation.sentence else f"{self._where()}: "
        return FailureReport(
            sentence=written or f"{where}{explanation.sentence}",
            code=explanation.code,
            host=self.program.host,
            rank=self.number,
            detail=tuple(self.stderr.detail),
            when=explanation.when,
            echo=explanation.echo,
            written=bool(written),
            signalled=code < 0,
        )

    def _where(self) -> str:
        return f"rank {self.number} on {self.program.host}" if self.rank else self.program.host

    def _who(self) -> str:
        return self._where() if self.rank else f"{self.program.name} on {self.program.host}"


def _await_program(process: subprocess.Popen[bytes]) -> int:
    """Wait for the program; returns its return code. Meanwhile reaps its orphans: zombies count against the
    container's process limit.
    """
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        if ended is None or ended.si_pid == process.pid:
            return process.wait()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(ended.si_pid, 0)


def _await_group(group: int) -> None:
    """Wait for the rest of a stopped shell's process group. A shell dies at once when it is stopped, while its child
    may still be saving. The processes become children of this one as their parents end.
    """
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-group, 0)


def _die_with_parent() -> None:
    """In the child: be killed if the wrapper is killed, because nothing else would end the program."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> int:
    """Run the rank. If the program can't be started, this writes a report, as for a program that fails."""
    folder = Path(arguments[0])
    program = read_program(folder)
    rank = Rank.from_mpirun(os.environ) if program.world_size else None
    number = rank.rank if rank else None
    wrapper = None
    try:
        check_rank(program, rank)
        wrapper = RankProcess(folder, program, rank)
        return wrapper.run()
    except JobError as error:
        sentence = str(error)
    except OSError as error:
        environment = wrapper.environment if wrapper else {}
        sentence = start_error_sentence(program.name, program.command, environment, error, program.cwd)
    failure.save_report(
        folder / "failures", FailureReport(sentence=sentence, host=program.host, rank=number, when=time.time())
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
