"""One model loaded, asked and unloaded over and over on a multi-model endpoint: how long that takes, and what stays.

Usage: python -m bench.loads --model out/model.tar.gz [--loads 300] > bench/results/DATE-loads.md

Memory is that of all processes of the container (PSS), after each unload. Ends with exit code 1 if it has grown by a
tenth from the tenth to the last. Wants an engine on this machine, root, and `make setup-tests`.
"""

import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from bench import machine, program
from bench.serving import sides
from bench.serving.container import Server, running
from bench.serving.our_image import add_options, our_sides
from berth.common import engine
from berth.common.errors import UserError

_SETTLED = 10
"""Loads after which what the front needs for its work is there."""
_QUESTION = {"question": "What is used?", "context": "This model is used with sagemaker for inference."}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Of one round: seconds to load, to answer and to unload, and bytes afterwards."""

    load: float
    answer: float
    unload: float
    memory: int


def load_often(server: Server, url: str, count: int) -> list[Loaded]:
    """So many rounds; UserError if one fails."""
    found = []
    for _ in range(count):
        load = _ask(server.port, "POST", "/models", {"model_name": "one", "url": url})
        answer = _ask(server.port, "POST", "/models/one/invoke", _QUESTION)
        unload = _ask(server.port, "DELETE", "/models/one")
        found.append(Loaded(load, answer, unload, server.memory()))
    return found


def _ask(port: int, method: str, path: str, value: Any = None) -> float:
    connection = HTTPConnection("127.0.0.1", port, timeout=90)
    began = time.monotonic()
    try:
        connection.request(method, path, None if value is None else json.dumps(value))
        response = connection.getresponse()
        said = response.read().decode(errors="replace")
    finally:
        connection.close()
    if response.status != 200:
        raise UserError(f"{method} {path} ended with {response.status}: {said}")
    return time.monotonic() - began


def growth(rounds: Sequence[Loaded]) -> float:
    """The last round's memory as a multiple of that of the tenth, or of the first of fewer."""
    settled = rounds[min(_SETTLED, len(rounds)) - 1].memory
    return rounds[-1].memory / settled


def render(title: str, lines: Sequence[str], before: int, rounds: Sequence[Loaded]) -> str:
    """A page of the figures."""
    marks = sorted({1, min(_SETTLED, len(rounds)), len(rounds) // 2 or 1, len(rounds)})
    text = [f"# {title}", "", *lines, "", "| | median | slowest |", "|---|---:|---:|"]
    for name in ("load", "answer", "unload"):
        seconds = [getattr(each, name) for each in rounds]
        text.append(f"| {name}, s | {statistics.median(seconds):.2f} | {max(seconds):.2f} |")
    text += ["", "| memory after | MB |", "|---|---:|", f"| no load | {before / 1e6:.0f} |"]
    text += [f"| {mark} | {rounds[mark - 1].memory / 1e6:.0f} |" for mark in marks]
    return "\n".join([*text, "", f"From load {min(_SETTLED, len(rounds))} to the last: {growth(rounds):.2f} times."])


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("loads", __doc__)
    add_options(parser)
    parser.add_argument("--loads", type=program.positive, default=300, help="default: %(default)s")
    options = parser.parse_args(words)
    options.environment.append("SAGEMAKER_MULTI_MODEL=true")
    cores = machine.cores_of(options.cores)
    client = engine.connect()
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as scratch:
        [side] = our_sides(options, [], Path(scratch))
        what = sides.describe(client, side)
        with running(client, side, cores, None, at="/opt/ml/models/one") as server:
            before = server.memory()
            rounds = load_often(server, "/opt/ml/models/one", options.loads)
    setting = f"{program.setting('loads', words, client, cores)}."
    print(render(f"A model loaded and unloaded, {time.strftime('%Y-%m-%d')}", [setting, what], before, rounds))
    return 1 if growth(rounds) > 1.1 else 0


if __name__ == "__main__":
    program.end_with(main)
