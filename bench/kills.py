"""Kill a small run_qa job at random moments and restart it until it ends: nothing may be lost.

Usage: python -m bench.kills [--kills 100] [--hosts 1 2] [--ranks-alone] > bench/results/DATE-kills.md

A kill is SIGKILL or SIGTERM of a rank, of a host's entry, or of all hosts at once; two of five are aimed at the writing
of a checkpoint. Between two starts S3 restores the hosts' /opt/ml/checkpoints, with parts of incomplete checkpoints.
The weights must be those of a job without kills, within 1e-4. Exit code 1 if anything was lost, if there were fewer
kills than --kills, or if fewer than a fifth of them hit a checkpoint while it was written.
With --ranks-alone the ranks are processes of this machine, which start within a second, without engine and entry.
"""

import argparse
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench import program
from bench.jobs import small
from bench.jobs.containers import Containers
from bench.jobs.killing import choose
from bench.jobs.processes import Ranks
from bench.jobs.restarting import JobRunner, Restarting
from bench.jobs.verdict import KilledJob, faults_of, render, shortfall
from berth.common import engine
from berth.images.pins import pins
from berth.images.selection import find_built_image

SEED = 18


def run(options: argparse.Namespace, folder: Path) -> list[KilledJob]:
    """Run jobs until all kills are used; every number of hosts gets an equal share of them."""
    channels = small.write_channels(folder / "data")
    began = time.monotonic()
    jobs = []
    for turn, hosts in enumerate(options.hosts):
        chances = random.Random(options.seed + hosts)
        share = options.kills // len(options.hosts) + (turn < options.kills % len(options.hosts))
        with contextlib.closing(_runner(options, channels, hosts)) as runner:
            restarting = Restarting(runner, folder, hosts, chances)
            restarting.run_whole()
            kills = choose(share, runner.victims, chances)
            until = began + 60 * options.minutes * (turn + 1) / len(options.hosts)
            while kills and time.monotonic() < until:
                job = restarting.run_killed(kills, until)
                jobs.append(job)
                for fault in faults_of(job, small.SAVE_EVERY):
                    print(f"FAULT: {fault}", file=sys.stderr)
                if not job.kills and time.monotonic() < until:
                    print(f"{kills.pop(0)}: the job ended before it", file=sys.stderr)
    return jobs


def _runner(options: argparse.Namespace, channels: dict[str, Path], hosts: int) -> JobRunner:
    if options.ranks_alone:
        return Ranks(channels, small.hyperparameters(), hosts)
    return Containers(options.image, channels, small.hyperparameters(), hosts)


def _setting(words: Sequence[str], options: argparse.Namespace) -> str:
    if options.ranks_alone:
        return program.setting("kills", words)
    with contextlib.closing(engine.connect()) as client:
        image = find_built_image(client, options.image)
        return f"{program.setting('kills', words, client)}, {options.image} ({str(image.id)[7:19]})"


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("kills", __doc__)
    parser.add_argument("--kills", type=program.positive, default=100, help="default: %(default)s")
    parser.add_argument("--hosts", type=program.positive, nargs="+", default=[1, 2], help="default: 1 2")
    parser.add_argument("--seed", type=int, default=SEED, help="default: %(default)s")
    parser.add_argument("--image", default=f"berth-train:{pins.DEFAULT_PROFILE}", help="default: %(default)s")
    parser.add_argument(
        "--minutes", type=program.above_zero, default=90.0, help="no kills after this time (default: %(default)s)"
    )
    parser.add_argument("--ranks-alone", action="store_true", help="run ranks as processes of this machine")
    options = parser.parse_args(words)
    setting = _setting(words, options)  # read the revision before the jobs: a commit may follow
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="berth-kills-") as scratch:
        jobs = run(options, Path(scratch))
    lines = [
        f"{setting}; {time.monotonic() - began:.0f} s.",
        f"{small.STEPS} steps of two ranks per host, a checkpoint every {small.SAVE_EVERY} steps.",
        *(
            ["The ranks are processes of this machine; `container` is all of them at once."]
            if options.ranks_alone
            else []
        ),
    ]
    print(render("Killed and restarted jobs", lines, jobs, small.SAVE_EVERY))
    if missing := shortfall(jobs, options.kills):
        print(f"\n{missing}")
    return 1 if missing or any(faults_of(job, small.SAVE_EVERY) for job in jobs) else 0


if __name__ == "__main__":
    program.end_with(main)
