"""Our inference image under more requests than it can answer: no request may be lost.

Usage: python -m bench.soak --model out/model.tar.gz [options] > bench/results/DATE-soak.md

For the model, the questions and the prerequisites see bench/serve.py. The capacity is the rate that 32 clients reach in
a closed loop, measured before the overload and again after it, because the speed of a shared machine drifts. Then
requests arrive independently of each other (a Poisson process) at 1.5 times that rate, by default for 10 minutes, with
a /ping every quarter of a second. Exit code 1 if a request was lost: no answer within 90 s, or a broken connection.
"""

import argparse
import os
import resource
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import machine, program, report
from bench.serving import questions, sides
from bench.serving.container import running
from bench.serving.figures import SoakFigures, closed_figures, soak_figures
from bench.serving.load import arrivals, closed_loop, open_loop
from bench.serving.our_image import SEED, add_options, our_sides, warm_up
from bench.serving.report import render_soak
from berth.common import engine
from berth.common.errors import UserError

AT_ONCE = 32
PING_EVERY = 0.25  # seconds


def main(words: Sequence[str]) -> int:
    options = _options(words)
    cores = machine.parse_cores(options.cores)
    os.sched_setaffinity(0, cores)
    _raise_open_files()
    client = engine.connect()
    file, requests = questions.from_environment(options.requests, SEED)
    bodies = [each.body for each in requests]
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as scratch:
        [side] = our_sides(options, [], Path(scratch))
        description = sides.describe(client, side)
        with running(client, side, cores, bodies[0]) as server:
            warm_up(server.port, bodies)
            capacity = _capacity(server.port, bodies)
            if not capacity:
                raise UserError(f"{side.image} answered none of {len(bodies)} requests: see its log.")
            memory = server.memory()
            figures = overload(server.port, bodies, options.factor * capacity, options.seconds)
            memories = (memory, server.memory())
            capacities = (capacity, _capacity(server.port, bodies))
    first = (
        f"{program.setting('soak', words, client, cores)}; {options.requests} requests of {file}, repeated, at "
        f"{options.factor:g} times the capacity of {capacity:.1f} requests/s for {options.seconds:g} s."
    )
    table = render_soak(figures, capacities, memories)
    print(report.page("The inference image under overload", [first, "", description], *table))
    return 1 if figures.lost else 0


def overload(port: int, bodies: Sequence[bytes], rate: float, seconds: float) -> SoakFigures:
    """The figures of `rate` requests per second for `seconds`, with a /ping every PING_EVERY seconds."""
    due = arrivals(rate, seconds, SEED)
    pings = [number * PING_EVERY for number in range(int(seconds / PING_EVERY))]
    return soak_figures(*open_loop(port, bodies, due, pings))


def _capacity(port: int, bodies: Sequence[bytes]) -> float:
    """Requests per second in a closed loop over all `bodies`."""
    rate = closed_figures(closed_loop(port, bodies, AT_ONCE)).per_second
    print(f"{AT_ONCE} at once: {rate:.1f} requests/s", file=sys.stderr)
    return rate


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = program.make_parser("soak", __doc__)
    add_options(parser)
    parser.add_argument("--seconds", type=float, default=600.0, help="duration of the overload (default: 600)")
    parser.add_argument("--factor", type=float, default=1.5, help="rate, in multiples of the capacity (default: 1.5)")
    return parser.parse_args(words)


def _raise_open_files() -> None:
    """Every waiting request has its own connection, and so its own file descriptor."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    program.end_with(main)
