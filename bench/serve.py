"""Our inference image next to its peer, side by side: rates, latencies, memory, and how soon each answers.

Usage: python -m bench.serve --model out/model.tar.gz [options] > bench/results/DATE-serve.md

The model is what `make demo` leaves in out/ (a MiniLM fine-tuned on the embedded excerpt; seven minutes on 2 cores), or
any folder or archive that `build.py run serve` takes. Questions are SQuAD's dev-v1.1 in the folder BERTH_SQUAD, else
the embedded excerpt. Wants idle cores, an engine on this machine, root, `make setup-tests`, and for the peer a package
index and 3 GB of disk.

In each round, in turn, both sides are started afresh on the same cores, get the same requests, and are ended: 100 to
warm up, 8 at once, after which memory is read; then all of them at each level of concurrency, in a closed loop. The
machine's own matrix product is measured before each round. Progress goes to stderr.
`--variant` adds a column of ours, such as `--variant int8 model=out/int8.tar.gz BERTH_X=1`, with these variables only.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from docker import DockerClient

from bench import machine, program
from bench.machine import MatrixProduct
from bench.serving import questions, sides
from bench.serving.container import running
from bench.serving.figures import agreement, closed_figures
from bench.serving.load import Load, closed_loop
from bench.serving.model import work_of
from bench.serving.our_image import SEED, add_options, our_sides, warm_up
from bench.serving.report import Column, Comparison, Round, render
from bench.serving.sides import Side
from berth.common import engine

LEVELS = (1, 8, 32)
"""Clients at once."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A round of one side, and the answers of its first level."""

    figures: Round
    answers: Load


def main(words: Sequence[str]) -> int:
    options = _options(words)
    cores = machine.cores_of(options.cores)
    os.sched_setaffinity(0, cores)  # the client's, and those of what it starts
    client = engine.connect()
    file, asked = questions.from_environment(options.requests, SEED)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-bench-")))
        compared = our_sides(options, options.variant, scratch)
        for side in compared:
            sides.require_image(client, side.image)
        work = machine.apart(work_of, compared[0].model, asked)
        if not options.only_ours:
            compared.insert(0, stack.enter_context(sides.peer(client, compared[0].model)))
        what = {side.name: sides.describe(client, side) for side in compared}
        measured, products = _measure(client, compared, [each.body for each in asked], cores, options.rounds)
    run = Comparison(
        title=f"The inference image{'' if options.only_ours else ' and its peer'}, {time.strftime('%Y-%m-%d')}",
        setting=f"{program.setting('serve', words, client, cores)}; {options.requests} requests of {file}",
        work=work,
        products=products,
        columns=_columns(what, measured),
    )
    print(render(run), end="")
    if options.json:
        options.json.write_text(json.dumps(asdict(run), indent=1) + "\n")
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
        help="a further column of ours",
    )
    parser.add_argument("--rounds", type=program.positive, default=3, help="starts of each side (default: %(default)s)")
    parser.add_argument("--only-ours", action="store_true", help="leave the peer out")
    return parser.parse_args(words)


def _measure(
    client: DockerClient, compared: Sequence[Side], bodies: Sequence[bytes], cores: Sequence[int], rounds: int
) -> tuple[dict[str, list[Measured]], list[MatrixProduct]]:
    """Every side, round by round in turn, by name; and the machine's matrix product before each round."""
    measured: dict[str, list[Measured]] = {side.name: [] for side in compared}
    products = []
    for number in range(rounds):
        products.append(machine.apart(machine.matrix_product, len(cores)))
        print(f"round {number + 1}: torch.mm {products[-1].flops / 1e9:.0f} GFLOP/s", file=sys.stderr)
        for side in compared if number % 2 == 0 else reversed(compared):
            measured[side.name].append(_round(client, side, bodies, cores))
    return measured, products


def _round(client: DockerClient, side: Side, bodies: Sequence[bytes], cores: Sequence[int]) -> Measured:
    with running(client, side, cores, bodies[0]) as server:
        warm_up(server.port, bodies)
        memory, processes = server.memory(), len(server.processes())
        loads = {}
        for at_once in LEVELS:
            loads[at_once] = closed_loop(server.port, bodies, at_once)
            rate = closed_figures(loads[at_once]).per_second
            print(f"{side.name}, {at_once} at once: {rate:.1f} requests/s", file=sys.stderr)
    closed = {at_once: closed_figures(load) for at_once, load in loads.items()}
    return Measured(Round(server.ping_s, server.first_answer_s, memory, processes, closed), loads[LEVELS[0]])


def _columns(what: Mapping[str, str], measured: Mapping[str, Sequence[Measured]]) -> list[Column]:
    """The answers of the first round are compared with the peer's, where there is one."""
    reference = measured.get(sides.PEER)
    columns = []
    for name, rounds in measured.items():
        compared = reference is not None and name != sides.PEER
        same = agreement(rounds[0].answers, reference[0].answers) if reference and compared else None
        columns.append(Column(name, what[name], tuple(each.figures for each in rounds), same))
    return columns


if __name__ == "__main__":
    program.end_with(main)
