"""Kill and restart a job until it ends, with S3 between its starts."""

import random
import shutil
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from bench.jobs import saved_checkpoints
from bench.jobs.killing import Kill, RunningJob, last_step, strike
from bench.jobs.verdict import KilledJob, Start
from berth.common.errors import UserError

_ENDS_WITHIN = 120.0


class JobRunner(Protocol):
    """Where jobs run: in containers, or as processes of this machine."""

    victims: tuple[str, ...]

    def lay_out(self, folder: Path) -> list[Path]:
        """Create an /opt/ml in `folder` for each host, the leader's first."""

    def started(self, roots: list[Path]) -> AbstractContextManager[RunningJob]:
        """Start the job; all its processes have exited at the end."""

    def close(self) -> None:
        """Release its resources."""


class Restarting:
    """Runs jobs on `hosts` hosts; all files are in `folder`."""

    def __init__(self, runner: JobRunner, folder: Path, hosts: int, chances: random.Random) -> None:
        self._runner = runner
        self._folder = folder
        self._hosts = hosts
        self._chances = chances
        self._starts = 0
        self._start_seconds = 0.0
        self._reference = folder / f"whole-{hosts}.safetensors"

    def run_whole(self) -> None:
        """Run a job without a kill, to get its weights and the time to its first step."""
        roots = self._lay_out()
        with self._runner.started(roots) as job:
            while job.running() and not last_step(job.log()):
                time.sleep(0.02)
            self._start_seconds = time.monotonic() - job.began
            codes = job.wait(_ENDS_WITHIN)
            if any(codes):
                raise UserError(f"the job without a kill ended with {codes}: {job.failures()}")
        shutil.copy(roots[0] / "model/model.safetensors", self._reference)
        shutil.rmtree(roots[0].parent)

    def run_killed(self, kills: list[Kill], until: float) -> KilledJob:
        """Run a job until it ends. Each start is killed once while `kills` has any, and before the monotonic time
        `until`; a completed kill is removed from `kills`.
        """
        killed_job = KilledJob(self._hosts)
        bucket = saved_checkpoints.Bucket(self._folder / f"bucket-{self._starts}", self._chances)
        while True:
            roots = self._lay_out()
            start = self._start(roots, bucket, kills[0] if kills and time.monotonic() < until else None)
            killed_job.starts.append(start)
            if start.completed_kill:
                kills.pop(0)
            if not any(start.codes):
                killed_job.difference = self._difference(roots[0] / "model/model.safetensors")
            shutil.rmtree(roots[0].parent)
            if not start.completed_kill or not any(start.codes):
                shutil.rmtree(bucket.folder)
                killed_job.spoiled = bucket.spoiled
                return killed_job

    def _start(self, roots: list[Path], bucket: saved_checkpoints.Bucket, kill: Kill | None) -> Start:
        folders = [root / "checkpoints" for root in roots]
        bucket.restore(folders)
        whole = tuple(saved_checkpoints.whole(folders[0]))
        with self._runner.started(roots) as job:
            completed_kill = strike(job, kill, self._start_seconds) if kill else None
            codes = tuple(job.wait(_ENDS_WITHIN))
            if any(codes) and not completed_kill:
                print(job.failures(), file=sys.stderr)
            start = Start(whole, job.log(), codes, kill if completed_kill else None, completed_kill)
        bucket.upload(folders)
        if completed_kill:
            saving = ", between a checkpoint's first byte and its manifest" if completed_kill.saving else ""
            print(f"{kill}: at step {completed_kill.step}{saving}; exit codes {codes}", file=sys.stderr)
        return start

    def _lay_out(self) -> list[Path]:
        self._starts += 1
        return self._runner.lay_out(self._folder / f"start-{self._hosts}-{self._starts}")

    def _difference(self, weights: Path) -> float | None:
        from safetensors.torch import load_file

        if not weights.is_file():
            return None
        ours, theirs = load_file(weights), load_file(self._reference)
        return max(float((ours[name] - theirs[name]).abs().max()) for name in theirs)
