"""Runs one rank's program: `python -m berth.train.rank <run folder>`, started by mpirun on every host, or by the entry
itself.

It takes the program and this host's environment from the run folder, adds the rank variables, checks the world size,
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from berth.contract.errors import JobError
from berth.train import failure, hardware
from berth.train.failure import FailureReport
from berth.train.line_buffer import LineBuffer
from berth.train.runfolder import LineOutput, Program, read_program
from berth.train.tracebacks import StarterFrames

_KEPT_LINES = 60
_NEAR_LIMIT = 0.8
"""Of its memory: what used less before SIGKILL came was hardly killed for it."""
_PIPE_SECONDS = 2.0
_PR_SET_PDEATHSIG = 1
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True, slots=True)
class RankPlace:
    """This rank's place in the job."""

    rank: int
    local_rank: int
    world_size: int
    local_world_size: int


def find_place(environ: Mapping[str, str]) -> RankPlace | None:
    """What mpirun says; None for a program that runs without mpirun."""
    names = ("RANK", "LOCAL_RANK", "SIZE", "LOCAL_SIZE")
    values = [environ.get(f"OMPI_COMM_WORLD_{name}") for name in names]
    if any(value is None for value in values):
        return None
    return RankPlace(*(int(value) for value in values if value is not None))


def rank_environment(program: Program, place: RankPlace | None, environ: Mapping[str, str]) -> dict[str, str]:
    """This host's environment, with what mpirun tells its ranks and the variables that torch and the user's script
    read.
    """
    ours = {**program.environment}
    ours |= {name: value for name, value in environ.items() if name.startswith(("OMPI_", "PMIX_", "ORTE_", "OPAL_"))}
    if place is not None and (prefix := environ.get("OPAL_PREFIX")):
        # mpirun does this too, but on a worker on top of ssh's environment instead of the container's.
        libraries = [f"{prefix}/lib", ours.get("LD_LIBRARY_PATH", "")]
        ours["LD_LIBRARY_PATH"] = ":".join(part for part in libraries if part)
    if place is not None and program.world_size:
        ours |= {
            "RANK": str(place.rank),
            "LOCAL_RANK": str(place.local_rank),
            "WORLD_SIZE": str(place.world_size),
            "LOCAL_WORLD_SIZE": str(place.local_world_size),
        }
    return ours


def check_place(program: Program, place: RankPlace | None) -> None:
    """JobError unless mpirun started the ranks that the plan says, for ranks that train alone give no error."""
    if not program.world_size:
        return
    if place is None:
        raise JobError(
            "the rank was started without mpirun's variables; start the job with `train`, not with the rank wrapper."
        )
    if (place.world_size, place.local_world_size) != (program.world_size, program.ranks_per_host):
        raise JobError(
            f"mpirun started {place.world_size} ranks, {place.local_world_size} on {program.host}, but the plan says "
            f"{program.world_size} "
            f"with {program.ranks_per_host} on each host; remove custom MPI options that change the number of "
            "processes."
        )


class RankProcess:
    """Runs the program and keeps what a report needs."""

    def __init__(self, folder: Path, program: Program, place: RankPlace | None) -> None:
        self.folder = folder
        self.program = program
        self.place = place
        self.rank = place.rank if place else None
        self.stderr: deque[str] = deque(maxlen=_KEPT_LINES)
        self.traceback_at = 0.0
        self.signalled = False
        self._too_early: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._output = LineOutput(folder)
        self._prefix = f"[rank {self.rank}] ".encode() if program.prefix_other_ranks and self.rank else b""
        self._sentence = folder / "failures" / f"sentence-{self.rank or 0}"

    def run(self) -> int:
        """Run to the end; returns the exit code as the shell counts it."""
        for number in _FORWARDED:
            signal.signal(number, self._forward)
        kills = hardware.oom_kills()
        environment = rank_environment(self.program, self.place, os.environ)
        environment[failure.FAILURE_FILE_VARIABLE] = str(self._sentence)
        pid_file = self.folder / "pids" / str(self.rank or 0)
        self._process = process = subprocess.Popen(
            self.program.command,
            cwd=self.program.cwd,
            env=environment,
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
            threading.Thread(target=self._pass_on, args=(stream, keep), daemon=True)
            for stream, keep in ((process.stdout, False), (process.stderr, True))
        ]
        for reader in readers:
            reader.start()
        code = process.wait()
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
            killed_for_memory = hardware.oom_kills() > kills
            failure.save_report(self.folder / "failures", self._report(code, ended_at, killed_for_memory))
        # Last: the entry takes this file's end for the end of the rank, report included.
        pid_file.unlink(missing_ok=True)
        return failure.exit_code(code)

    def _forward(self, number: int, _frame: object) -> None:
        self.signalled = True
        if self._process is None:
            self._too_early.append(number)
        elif self._process.poll() is None:
            with contextlib.suppress(OSError):
                (os.killpg if self.program.shell else os.kill)(self._process.pid, number)

    def _pass_on(self, stream: IO[bytes], keep: bool) -> None:
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
                if text.startswith("Traceback (most recent call last)"):
                    self.traceback_at = time.time()
            self._output.write(self._prefix + line + b"\n")

    def _report(self, code: int, ended_at: float, killed_for_memory: bool) -> FailureReport:
        lines = list(self.stderr)
        first = ""  # without the later lines of an exception's message, among which other threads' lines may be
        told = self._sentence.read_text("utf-8", "replace").strip() if self._sentence.exists() else ""
        if told:
            sentence = told
        elif code < 0:
            sentence = killed_sentence(self._who(), -code, killed_for_memory)
        else:
            sentence = failure.ending_sentence(self.program.name, code, lines, self.program.code_dir)
            first = failure.ending_sentence(self.program.name, code, lines, self.program.code_dir, whole=False)
            sentence = sentence if self.program.alone else f"{self._where()}: {sentence}"
        return FailureReport(
            sentence=sentence,
            code=failure.exit_code(code),
            host=self.program.host,
            rank=self.rank,
            detail=tuple(lines),
            when=min(ended_at, self.traceback_at or ended_at),
            # mpirun ends the other ranks of a job that failed: their death explains nothing.
            echo=self.signalled or failure.is_echo(first),
        )

    def _where(self) -> str:
        return f"rank {self.rank} on {self.program.host}" if self.place else self.program.host

    def _who(self) -> str:
        return self._where() if self.place else f"{self.program.name} on {self.program.host}"


def killed_sentence(who: str, number: int, killed_for_memory: bool, root: Path = Path("/")) -> str:
    """`rank 1 on algo-2 was killed by SIGKILL: out of memory, …`: what is known about a death by signal."""
    name = failure.signal_name(number)
    peak, limit = hardware.memory_peak(root), hardware.memory_limit(root)
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
    if number in (signal.SIGTERM, signal.SIGINT):
        return f"{who} was stopped by {name}; the job was ended from outside before it was done."
    return f"{who} was killed by {name}; the last lines below are from its log."


def _mib(size: int | None) -> str:
    return "unknown" if size is None else f"{size >> 20} MiB"


def _die_with_parent() -> None:
    """In the child: be killed when the wrapper is, for nobody else would know of the program."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> int:
    """Run the rank; mistakes become a report, like a program's failure."""
    folder = Path(arguments[0])
    program = read_program(folder)
    place = find_place(os.environ) if program.world_size else None
    try:
        check_place(program, place)
        return RankProcess(folder, program, place).run()
    except (JobError, OSError) as error:
        sentence = (
            str(error)
            if isinstance(error, JobError)
            else f"{program.name} could not be started ({error}); check the program's file."
        )
        rank = place.rank if place else None
        failure.save_report(
            folder / "failures", FailureReport(sentence=sentence, host=program.host, rank=rank, when=time.time())
        )
        return 1


if __name__ == "__main__":
    sys.exit(main())
