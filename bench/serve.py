"""Our inference image next to its peer: request rates, latencies, memory, and the seconds to the first answer.

Usage: python -m bench.serve --model out/model.tar.gz [options] > bench/results/DATE-serve.md

`make demo` writes such a model in out/ (a MiniLM fine-tuned on the embedded excerpt; seven minutes on 2 cores); any
folder or archive that `build.py run serve` accepts works. The questions are SQuAD's dev-v1.1 in the folder BERTH_SQUAD,
or the embedded excerpt. Needs idle cores, an engine on this machine, root, `make setup-tests`, and for the peer a
package index and 3 GB of disk.

In each round both sides are started on the same cores, get the same requests, and are stopped: 100 requests to warm up,
8 at once, then memory is measured; then all requests at each level of concurrency, in a closed loop. The sides change
their order in every round. Progress goes to stderr.
`--variant` adds a column of our image with only these variables, such as
`--variant int8 model=out/int8.tar.gz BERTH_PRECISION=int8`.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from docker import DockerClient

from bench import machine, program, report
from bench.serving import questions, sides
from bench.serving.container import running
from bench.serving.figures import agreement, closed_figures
from bench.serving.load import closed_loop
from bench.serving.our_image import SEED, add_options, our_sides, warm_up
from bench.serving.report import Column, Round, render
from bench.serving.sides import Side
from berth.common import engine

LEVELS = (1, 8, 32)
"""Clients at once."""


def main(words: Sequence[str]) -> int:
    options = _options(words)
    cores = machine.parse_cores(options.cores)
    os.sched_setaffinity(0, cores)  # of this client and of the processes that it starts
    client = engine.connect()
    file, requests = questions.from_environment(options.requests, SEED)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-bench-")))
        compared = our_sides(options, options.variant, scratch)
        for side in compared:
            sides.require_image(client, side.image)
        if not options.only_ours:
            compared.insert(0, stack.enter_context(sides.peer(client, compared[0].model)))
        descriptions = {side.name: sides.describe(client, side) for side in compared}
        rounds = _measure(client, compared, [each.body for each in requests], cores, options.rounds)
    setting = (
        f"{program.setting('serve', words, client, cores)}; {options.requests} requests of {file}; rounds: "
        f"{options.rounds}; medians, in brackets the smallest and the largest."
    )
    title = f"The inference image{'' if options.only_ours else ' and its peer'}"
    print(report.page(title, [setting], *render(_columns(descriptions, rounds))))
    return 0


def _options(words: Sequence[str]) -> argparse.Namespace:
    parser = program.make_parser("serve", __doc__)
    add_options(parser)
    parser.add_argument(
        *("--variant", "-v"),
        action="append",
        default=[],
        nargs="+",
        metavar=("NAME", "image=I model=PATH VARIABLE=VALUE"),
        help="another column of our image",
    )
    parser.add_argument("--rounds", type=program.positive, default=3, help="starts of each side (default: %(default)s)")
    parser.add_argument("--only-ours", action="store_true", help="skip the peer")
    return parser.parse_args(words)


def _measure(
    client: DockerClient, compared: Sequence[Side], bodies: Sequence[bytes], cores: Sequence[int], rounds: int
) -> dict[str, list[Round]]:
    """The rounds of every side, by its name."""
    measured: dict[str, list[Round]] = {side.name: [] for side in compared}
    for number in range(rounds):
        for side in compared if number % 2 == 0 else reversed(compared):
            measured[side.name].append(_round(client, side, bodies, cores))
    return measured


def _round(client: DockerClient, side: Side, bodies: Sequence[bytes], cores: Sequence[int]) -> Round:
    with running(client, side, cores, bodies[0]) as server:
        warm_up(server.port, bodies)
        memory, processes = server.memory(), len(server.processes())
        loads = {}
        for at_once in LEVELS:
            loads[at_once] = closed_loop(server.port, bodies, at_once)
            rate = closed_figures(loads[at_once]).per_second
            print(f"{side.name}, {at_once} at once: {rate:.1f} requests/s", file=sys.stderr)
    closed = {at_once: closed_figures(load) for at_once, load in loads.items()}
    return Round(server.ping_s, server.first_answer_s, memory, processes, closed, loads[LEVELS[0]])


def _columns(descriptions: Mapping[str, str], measured: Mapping[str, Sequence[Round]]) -> list[Column]:
    """A column for each side. The answers of its first round are compared with the peer's, if the peer was measured."""
    reference = measured.get(sides.PEER)
    columns = []
    for name, rounds in measured.items():
        compared = reference is not None and name != sides.PEER
        same = agreement(rounds[0].answers, reference[0].answers) if reference and compared else None
        columns.append(Column(name, descriptions[name], rounds, same))
    return columns


if __name__ == "__main__":
    program.end_with(main)
