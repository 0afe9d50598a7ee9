"""Which process of a job is killed, when and by which signal: chosen by a seed, then done."""

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

from bench.jobs.kept import being_written

STEP_LINE = re.compile(r"\bstep (\d+) of \d+\b")
MOMENTS = ("starting", "training", "saving")
_LOOK_EVERY = 0.002
_SAVING_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Kill:
    """victim: `rank` (one process of run_qa), `entry` (process 1 of one host) or `container` (every host at once).

    moment: `starting`: at the share `at` of the time until the first step; `training`: after `steps` further steps;
    `saving`: up to 50 ms after a checkpoint's first file, if it has no manifest by then, else in the next one.
    which: the share that chooses a rank or a host.
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
    """So many kills. Two of five are meant for the writing of a checkpoint, most of them by SIGKILL, for a process that
    is asked to stop writes it to its end.
    """
    kills = []
    for number in range(count):
        moment = MOMENTS[(1, 2, 0, 1, 2)[number % 5]]
        asked = chances.random() < (0.2 if moment == "saving" else 0.5)
        kills.append(
            Kill(
                victim=chances.choice(list(victims)),
                number=signal.SIGTERM if asked else signal.SIGKILL,
                moment=moment,
                at=chances.random(),
                steps=chances.randint(1, 6),
                which=chances.random(),
            )
        )
    chances.shuffle(kills)
    return kills


class RunningJob(Protocol):
    """A job that has been started, as a kill finds it."""

    began: float
    """By the monotonic clock."""

    @property
    def checkpoints(self) -> Path:
        """The leader's checkpoint folder."""

    def log(self) -> str:
        """What the leader has written so far."""

    def running(self) -> bool:
        """Whether any process of the job is left."""

    def ranks(self) -> list[int]:
        """Process ids of run_qa, of all hosts; those that are there by now."""

    def entries(self) -> list[int]:
        """Process ids of the hosts' first processes; of ranks without hosts all ranks."""


@dataclass(frozen=True, slots=True)
class Struck:
    """A kill that was done. step: the last that the log had told; saving: a checkpoint was being written before the
    signal and is without a manifest after it.
    """

    step: int
    saving: bool


def lives(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def last_step(log: str) -> int:
    """The last step that a log tells of, 0 if none."""
    found = STEP_LINE.findall(log)
    return int(found[-1]) if found else 0


def strike(job: RunningJob, kill: Kill, start_seconds: float) -> Struck | None:
    """Wait for the moment of a kill and send its signal; None for a job that has ended before.

    `start_seconds`: how long such a job takes to its first step.
    """
    known = set(os.listdir(job.checkpoints))
    while job.running():
        time.sleep(_LOOK_EVERY)
        if not _due(job, kill, start_seconds, known):
            continue
        if not (pids := _chosen(job, kill)):
            continue  # not there yet
        step = last_step(job.log())
        written = being_written(job.checkpoints, known)
        if kill.moment == "saving" and not written:
            continue  # too late: the next one
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, kill.number)
        return Struck(step, saving=bool(written) and being_written(job.checkpoints, known) == written)
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


def _chosen(job: RunningJob, kill: Kill) -> list[int]:
    pids = job.ranks() if kill.victim == "rank" else job.entries()
    if kill.victim == "container" or not pids:
        return pids
    return [pids[int(kill.which * len(pids))]]
