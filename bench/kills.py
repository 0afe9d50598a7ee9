"""A small job of run_qa that is killed at random moments and started again until it ends: what is lost?

Usage: python -m bench.kills [--kills 100] [--hosts 1 2] [--ranks-alone] > bench/results/DATE-kills.md

A kill is SIGKILL or SIGTERM of a rank, of a host's entry, or of all hosts at once; two of five are aimed at the writing
of a checkpoint. Between two starts S3 brings back what the hosts had in /opt/ml/checkpoints, half-written folders in
part. The weights must be those of a job that nobody killed, within 1e-4. Ends with exit code 1 if anything was lost, or
if there were fewer kills, or fewer than a fifth of them while a checkpoint was written.
With --ranks-alone the ranks are processes of this machine, which start within a second: no engine, and no entry.
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
from bench.jobs.restarting import Ground, Restarting
from bench.jobs.verdict import KilledJob, faults_of, render, shortfall
from berth.common import engine
from berth.images.pins import pins
from berth.images.selection import find_built_image

SEED = 18


def run(options: argparse.Namespace, folder: Path) -> list[KilledJob]:
    """All jobs: as many as it takes for the kills, which the numbers of hosts share."""
    channels = small.write_channels(folder / "data")
    began = time.monotonic()
    jobs = []
    for turn, hosts in enumerate(options.hosts):
        chances = random.Random(options.seed + hosts)
        share = options.kills // len(options.hosts) + (turn < options.kills % len(options.hosts))
        with contextlib.closing(_ground(options, channels, hosts)) as ground:
            restarting = Restarting(ground, folder, hosts, chances)
            restarting.run_whole()
            kills = choose(share, ground.victims, chances)
            until = began + 60 * options.minutes * (turn + 1) / len(options.hosts)
            while kills and time.monotonic() < until:
                job = restarting.run_killed(kills, until)
                jobs.append(job)
                for fault in faults_of(job, small.SAVE_EVERY):
                    print(f"FAULT: {fault}", file=sys.stderr)
                if not job.kills and time.monotonic() < until:
                    print(f"{kills.pop(0)}: its moment never came", file=sys.stderr)
    return jobs


def _ground(options: argparse.Namespace, channels: dict[str, Path], hosts: int) -> Ground:
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
        "--minutes", type=program.above_zero, default=90.0, help="after which no further kill (default: %(default)s)"
    )
    parser.add_argument("--ranks-alone", action="store_true", help="ranks as processes of this machine")
    options = parser.parse_args(words)
    setting = _setting(words, options)  # of the kit as it is now, for a commit may come meanwhile
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="berth-kills-") as scratch:
        jobs = run(options, Path(scratch))
    lines = [
        f"{setting}; {time.monotonic() - began:.0f} s.",
        f"{small.STEPS} steps of two ranks on each host, a checkpoint at every {small.SAVE_EVERY} of them.",
        *(
            ["The ranks are processes of this machine; `container` is all of them at once."]
            if options.ranks_alone
            else []
        ),
    ]
    print(render("Jobs that were killed", lines, jobs, small.SAVE_EVERY))
    if missing := shortfall(jobs, options.kills):
        print(f"\n{missing}")
    return 1 if missing or any(faults_of(job, small.SAVE_EVERY) for job in jobs) else 0


if __name__ == "__main__":
    program.end_with(main)
