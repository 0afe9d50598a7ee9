"""Thousands of random loads, requests, unloads, kills and stops of models on real multi-model servers.

Usage: python -m bench.models [--steps 3000] [--examples 6] > bench/results/DATE-models.md

The servers run on this machine without a container, with models of a few kilobytes. After each step the list of models,
the counters, the worker processes and their folders must match the previous steps; otherwise the program stops with an
error. Exit code 1 if the memory of a server's process 1 grew by a tenth from its first example to its last. Needs
`make setup-tests`.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import program, report
from tests.unit.serve.models.kinds import write_models
from tests.unit.serve.models.machine import Session
from tests.unit.small_models import add_graph, save_tiny_model

_STEPS_EACH = 60
"""Most steps of an example. After an example all models are unloaded, or the server is stopped."""
_MOST_GROWTH = 1.1


def growth(memory: Sequence[Sequence[int]]) -> float:
    """The largest ratio of a server's memory after its last example to that after its first; 1 without two examples."""
    return max((each[-1] / each[0] for each in memory if len(each) > 1), default=1.0)


def render(title: str, setting: str, session: Session) -> str:
    """The page of results."""
    counts = [report.row(*count) for count in sorted(session.counts.items())]
    memory = [", ".join(f"{each / 1e6:.1f}" for each in server) for server in session.memory]
    return report.page(
        title,
        [f"{setting}; {session.steps} steps in {session.examples} examples against {session.servers} servers."],
        *report.table(["request and status, or event", " times"], counts),
        "",
        "MB of process 1 of each server after each example, with all models unloaded:",
        "",
        *(f"- {server}" for server in memory),
        "",
        f"Memory from the first example to the last: {growth(session.memory):.2f} times.",
    )


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("models", __doc__)
    parser.add_argument(
        "--steps", type=program.positive, default=3000, help="at least this many (default: %(default)s)"
    )
    parser.add_argument(
        "--examples", type=program.positive, default=6, help="examples per server (default: %(default)s)"
    )
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as scratch:
        base = Path(scratch)
        tiny = {f"tiny{seed}": base / f"tiny{seed}" for seed in (0, 1)}
        for seed, folder in enumerate(tiny.values()):
            save_tiny_model(folder, seed)
            add_graph(folder)
        write_models(base, tiny)
        session = Session(base, options.examples)
        while session.steps < options.steps:
            session.run(-(-(options.steps - session.steps) // _STEPS_EACH), _STEPS_EACH, same=False)
    print(render("Many models, loaded and unloaded at random", program.setting("models", words), session))
    return 1 if growth(session.memory) > _MOST_GROWTH else 0


if __name__ == "__main__":
    program.end_with(main)
