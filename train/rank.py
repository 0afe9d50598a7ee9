"""Runs one rank's program: `python -m berth.train.rank <run folder>`, started by mpirun on every host, or by the entry
itself.

It takes the program and this host's environment from the run folder, adds the rank's variables, checks its numbers,
passes output on in whole lines and signals to the program, and leaves a report when the program ends badly. It exits
with the program's code.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from berth.contract.errors import JobError
from berth.runtime import memory
from berth.train import failure
from berth.train.environment import Rank, rank_environment
from berth.train.failure import FailureReport
from berth.train.line_buffer import LineBuffer
from berth.train.rank_events import EVENTS_FILE_VARIABLE
from berth.train.runfolder import LineOutput, Program, read_program
from berth.train.tracebacks import StarterFrames

_KEPT_LINES = 60
_NEAR_LIMIT = 0.8
"""Of its memory: what used less before SIGKILL came was hardly killed for it."""
_PIPE_SECONDS = 2.0
_DYING_SECONDS = 3.0
"""From a traceback to the end of a program whose exception ends it; mpi4py first asks mpirun to end all ranks."""
_OF_AN_EXCEPTION = 1
"""Python's exit code, which a signal on the way out has taken from it."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_STOPS = (signal.SIGTERM, signal.SIGINT)
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


def check_rank(program: Program, rank: Rank | None) -> None:
    """JobError unless mpirun started the ranks that the plan says, for ranks that train alone give no error."""
    if not program.world_size:
        return
    if rank is None:
        raise JobError(
            "the rank was started without mpirun's variables; start the job with `train`, not with the rank wrapper."
        )
    if (rank.world_size, rank.local_world_size) != (program.world_size, program.ranks_per_host):
        raise JobError(
            f"mpirun started {rank.world_size} ranks, {rank.local_world_size} on {program.host}, but the plan says "
            f"{program.world_size} "
            f"with {program.ranks_per_host} on each host; remove custom MPI options that change the number of "
            "processes."
        )


class RankProcess:
    """Runs the program and keeps what a report needs."""

    def __init__(self, folder: Path, program: Program, rank: Rank | None) -> None:
        self.folder = folder
        self.program = program
        self.rank = rank
        self.number = rank.rank if rank else None
        self.stderr: deque[str] = deque(maxlen=_KEPT_LINES)
        self.traceback_at = 0.0
        self.signalled_at = 0.0
        self._too_early: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._output = LineOutput(folder)
        self._prefix = f"[rank {self.number}] ".encode() if program.prefix_other_ranks and self.number else b""
        self._sentence = folder / "failures" / f"sentence-{self.number or 0}"
        self._events = folder / "events" / str(self.number or 0)

    def run(self) -> int:
        """Run to the end; returns the exit code as the shell counts it."""
        for number in _FORWARDED:
            signal.signal(number, self._forward)
        if self.program.shell:
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # for `_await_group`
        kills = memory.oom_kills()
        pid_file = self.folder / "pids" / str(self.number or 0)
        self._events.touch()
        self._process = process = subprocess.Popen(
            self.program.command,
            cwd=self.program.cwd,
            env=rank_environment(
                self.program,
                self.rank,
                os.environ,
                {failure.FAILURE_FILE_VARIABLE: self._sentence, EVENTS_FILE_VARIABLE: self._events},
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # A group of its own: mpirun signals the wrapper's group, and data loaders must not get what is meant for
            # the program.
            process_group=0,
            preexec_fn=_die_with_parent,
        )
        # What came while the program was being started.
        for early in self._too_early:
            self._forward(early, None)
        pid_file.write_text(f"{process.pid} {'group' if self.program.shell else 'process'}", "utf-8")
        assert process.stdout is not None
        assert process.stderr is not None
        readers = [
            threading.Thread(target=self._pass_on, args=(stream,), kwargs={"keep": keep}, daemon=True)
            for stream, keep in ((process.stdout, False), (process.stderr, True))
        ]
        for reader in readers:
            reader.start()
        code = process.wait()
        if self.program.shell and -code in _STOPS:
            _await_group(process.pid)
        ended_at = time.time()
        deadline = time.monotonic() + _PIPE_SECONDS
        for reader in readers:
            reader.join(max(0.0, deadline - time.monotonic()))
        # Whatever the program left behind (a data loader that holds the pipe) goes now, or the job would not end.
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        for reader in readers:
            reader.join(0.5)
        if code != 0:
            report = self._report(code, ended_at, killed_for_memory=memory.oom_kills() > kills)
            failure.save_report(self.folder / "failures", report)
        # Last: the entry takes this file's end for the end of the rank, report included.
        pid_file.unlink(missing_ok=True)
        return failure.exit_code(code)

    def _forward(self, number: int, _frame: object) -> None:
        self.signalled_at = self.signalled_at or time.time()
        if self._process is None:
            self._too_early.append(number)
        elif self._process.poll() is None:
            with contextlib.suppress(OSError):
                (os.killpg if self.program.shell else os.kill)(self._process.pid, number)

    def _pass_on(self, stream: IO[bytes], *, keep: bool) -> None:
        lines = LineBuffer()
        starters = StarterFrames() if keep else None
        while data := os.read(stream.fileno(), 65536):
            self._emit(lines.feed(data, time.monotonic()), starters)
        self._emit(lines.end(), starters)

    def _emit(self, lines: Sequence[bytes], starters: StarterFrames | None) -> None:
        """Pass lines on; of stderr, where `starters` is given, those that tell of a failure are kept."""
        for line in lines:
            if starters is not None:
                text = failure.without_rank(line.decode("utf-8", "replace"))
                if starters.has(text):
                    continue
                self.stderr.append(text)
                if text.startswith(failure.TRACEBACK):
                    self.traceback_at = time.time()
            self._output.write(self._prefix + line + b"\n")

    def _report(self, code: int, ended_at: float, *, killed_for_memory: bool) -> FailureReport:
        lines = list(self.stderr)
        raised = self._was_raising(code, ended_at) and not killed_for_memory
        first = ""  # without the later lines of an exception's message, among which other threads' lines may be
        written = self._sentence.read_text("utf-8", "replace").strip() if self._sentence.exists() else ""
        if written:
            sentence = written
        elif code < 0 and not raised:
            sentence = killed_sentence(self._who(), -code, killed_for_memory=killed_for_memory)
        else:
            sentence = failure.ending_sentence(self.program.name, code, lines, self.program.code_dir)
            first = failure.ending_sentence(self.program.name, code, lines, self.program.code_dir, whole=False)
            sentence = sentence if self.program.alone else f"{self._where()}: {sentence}"
        return FailureReport(
            sentence=sentence,
            code=_OF_AN_EXCEPTION if raised else failure.exit_code(code),
            host=self.program.host,
            rank=self.number,
            detail=tuple(lines),
            when=self.traceback_at if raised or (code > 0 and self.traceback_at) else ended_at,
            # mpirun ends the other ranks of a job that failed: their death explains nothing.
            echo=(bool(self.signalled_at) and not raised) or failure.is_echo(first),
            written=bool(written),
            signalled=code < 0,
        )

    def _was_raising(self, code: int, ended_at: float) -> bool:
        """Whether a signal found the program on its way out, by an exception that it had before."""
        asked_before = 0.0 < self.signalled_at < self.traceback_at
        return code < 0 and ended_at - self.traceback_at < _DYING_SECONDS and not asked_before

    def _where(self) -> str:
        return f"rank {self.number} on {self.program.host}" if self.rank else self.program.host

    def _who(self) -> str:
        return self._where() if self.rank else f"{self.program.name} on {self.program.host}"


def killed_sentence(who: str, number: int, *, killed_for_memory: bool, root: Path = Path("/")) -> str:
    """`rank 1 on algo-2 was killed by SIGKILL: out of memory, …`: what is known about a death by signal."""
    name = failure.signal_name(number)
    peak, limit = memory.memory_peak(root), memory.memory_limit(root)
    used = f"peak {_mib(peak)} of {_mib(limit)}"
    if killed_for_memory:
        return (
            f"{who} was killed by {name}: out of memory ({used}); use a smaller batch, fewer processes per host or a "
            "larger instance."
        )
    if number == signal.SIGKILL and peak is not None and limit is not None and peak < _NEAR_LIMIT * limit:
        return (
            f"{who} was killed by {name}, and memory was not short ({used}): find out who sent the signal, such as the "
            "program itself, the engine or a `docker kill`."
        )
    if number == signal.SIGKILL:
        return f"{who} was killed by {name} (out of memory? {used}); if so, use a smaller batch or a larger instance."
    if number == signal.SIGBUS:
        return failure.bus_error_sentence(who)
    if number in _STOPS:
        return f"{who} was stopped by {name}; the job was ended from outside before it was done."
    return f"{who} was killed by {name}; the last lines below are from its log."


def _mib(size: int | None) -> str:
    return "unknown" if size is None else f"{size >> 20} MiB"


def _await_group(group: int) -> None:
    """A shell that is told to stop dies at once, and what it ran may be saving: wait for the rest of its group, whose
    processes become this one's children as their parents end.
    """
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-group, 0)


def _die_with_parent() -> None:
    """In the child: be killed when the wrapper is, for nobody else would know of the program."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> int:
    """Run the rank; mistakes become a report, like a program's failure."""
    folder = Path(arguments[0])
    program = read_program(folder)
    rank = Rank.from_mpirun(os.environ) if program.world_size else None
    try:
        check_rank(program, rank)
        return RankProcess(folder, program, rank).run()
    except (JobError, OSError) as error:
        sentence = (
            str(error)
            if isinstance(error, JobError)
            else f"{program.name} could not be started ({error}); check the program's file."
        )
        number = rank.rank if rank else None
        failure.save_report(
            folder / "failures", FailureReport(sentence=sentence, host=program.host, rank=number, when=time.time())
        )
        return 1


if __name__ == "__main__":
    sys.exit(main())
