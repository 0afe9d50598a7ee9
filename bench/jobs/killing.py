"""Choose from a seed which process of a job is killed when and by which signal, and kill it."""

import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.jobs.saved_checkpoints import being_written

STEP_LINE = re.compile(r"\bstep (\d+) of \d+\b")
MOMENTS = ("starting", "training", "saving")
_LOOK_EVERY = 0.002
_SAVING_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Kill:
    """One planned kill.

    victim: `rank` (one process of run_qa), `entry` (process 1 of one host) or `container` (every host at once).
    moment: `starting`: at the share `at` of the time until the first step; `training`: after `steps` further steps;
    `saving`: up to 50 ms after a checkpoint's first file. If the manifest exists by then, the next checkpoint is used.
    which: a number from 0 to 1 that selects the rank or host.
    """

    victim: str
    number: signal.Signals
    moment: str
    at: float
    steps: int
    which: float

    def __str__(self) -> str:
        return f"{self.number.name} of {self.victim} while {self.moment}"


def choose(count: int, victims: Sequence[str], chances: random.Random) -> list[Kill]:
    """`count` kills. Two of five are aimed at the writing of a checkpoint, most of these with SIGKILL, because after
    SIGTERM a process completes its checkpoint.
    """
    kills = []
    for number in range(count):
        moment = MOMENTS[(1, 2, 0, 1, 2)[number % 5]]
        by_sigterm = chances.random() < (0.2 if moment == "saving" else 0.5)
        kills.append(
            Kill(
                victim=chances.choice(list(victims)),
                number=signal.SIGTERM if by_sigterm else signal.SIGKILL,
                moment=moment,
                at=chances.random(),
                steps=chances.randint(1, 6),
                which=chances.random(),
            )
        )
    chances.shuffle(kills)
    return kills


class RunningJob(Protocol):
    """A started job, in containers or as processes."""

    began: float  # time.monotonic()

    @property
    def checkpoints(self) -> Path:
        """The leader's checkpoint folder."""

    def log(self) -> str:
        """The leader's log so far."""

    def running(self) -> bool:
        """Whether any process of the job still runs."""

    def ranks(self) -> list[int]:
        """Process ids of the ranks of all hosts that run by now."""

    def entries(self) -> list[int]:
        """Process ids of the hosts' process 1; all ranks if they run without containers."""

    def wait(self, limit: float) -> list[int]:
        """The exit codes of its hosts or ranks; those that still run after `limit` seconds are killed."""

    def failures(self) -> str:
        """The last lines of all logs."""


@dataclass(frozen=True, slots=True)
class CompletedKill:
    """A completed kill. step: the last step in the log; saving: a checkpoint was being written, and has no manifest
    after the signal.
    """

    step: int
    saving: bool


def lives(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def last_step(log: str) -> int:
    """The last step in a log; 0 if there is none."""
    found = STEP_LINE.findall(log)
    return int(found[-1]) if found else 0


def strike(job: RunningJob, kill: Kill, start_seconds: float) -> CompletedKill | None:
    """Wait for the moment of a kill and send its signal; None if the job ends before.

    start_seconds: the time from the start of such a job to its first step.
    """
    known = set(os.listdir(job.checkpoints))
    while job.running():
        time.sleep(_LOOK_EVERY)
        if not _due(job, kill, start_seconds, known):
            continue
        if not (pids := _victims(job, kill)):
            continue  # no such process yet
        step = last_step(job.log())
        written = being_written(job.checkpoints, known)
        if kill.moment == "saving" and not written:
            continue  # too late: wait for the next checkpoint
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, kill.number)
        return CompletedKill(step, saving=bool(written) and being_written(job.checkpoints, known) == written)
    return None


def _due(job: RunningJob, kill: Kill, start_seconds: float, known: Container[str]) -> bool:
    if kill.moment == "saving":
        if not being_written(job.checkpoints, known):
            return False
        time.sleep(kill.at * _SAVING_SECONDS)
        return True
    if kill.moment == "starting":
        return time.monotonic() - job.began >= kill.at * start_seconds or last_step(job.log()) > 0
    return len(STEP_LINE.findall(job.log())) >= kill.steps


def _victims(job: RunningJob, kill: Kill) -> list[int]:
    pids = job.ranks() if kill.victim == "rank" else job.entries()
    if kill.victim == "container" or not pids:
        return pids
    return [pids[int(kill.which * len(pids))]]
