"""Memory of the inference image: three sizes of model, each precision, several workers, several models.

Usage: python -m bench.sizes [--image IMAGE] [--models MiniLM-L6 bert-base …] > bench/results/DATE-sizes.md

The models have the real shapes and random weights, which take the same memory. Each row is a container whose memory
limit is the one that the rule of docs/size-it.md gives. It answers 100 questions, 4 at once, a quarter of which cover
all lengths of a window; then its memory is measured. Exit code 1 if a container does not answer within its limit or
uses less than half of it, because then the rule is wrong. Needs an engine on this machine, root, `make setup-tests`,
and up to `--most-mb` of memory. It does not measure times.
"""

import argparse
import http.client
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from docker import DockerClient

from bench import machine, program, report
from bench.jobs import small
from bench.serving import questions, sides
from bench.serving.container import Server, running
from bench.serving.load import closed_loop
from bench.serving.our_image import SEED
from bench.serving.peak_memory import peak_of
from bench.serving.questions import Request
from bench.serving.request import ask
from bench.serving.sides import Side
from berth.common import engine
from berth.common.errors import UserError
from berth.images.pins import pins
from berth.local.demo import pretrained_model

FRONT_MB = 100
RULE = {"fp32": (160, 3.5), "fp32, one thread": (160, 2.0), "bf16": (160, 2.5), "int8": (320, 1.5)}
"""Memory of a container: FRONT_MB, and per worker these megabytes and this multiple of the fp32 file's size. With one
thread per worker the engine keeps one copy of the weights less."""
SHAPES = {"MiniLM-L6": (6, 384, 12), "bert-base": (12, 768, 12), "bert-large": (24, 1024, 16)}
"""Layers, hidden size, heads."""
COLUMNS = (
    *("model", " fp32 weights, MB", "precision", "workers"),
    *(" rule, MB", " memory (PSS), MB", " of the rule", " peak, MB"),
)
REQUESTS, AT_ONCE = 100, 4
LENGTHS, LONGEST, SHORT = 24, 1600, 100
"""LENGTHS requests have contexts of up to LONGEST characters, because the engine keeps kernels for each length of a
window. The other contexts have SHORT characters."""


@dataclass(frozen=True, slots=True)
class Case:
    """What a container serves: `workers` of one model or, if `multi`, that many models with one worker each."""

    model: str
    precision: str = "fp32"
    workers: int = 1
    multi: bool = False

    def __str__(self) -> str:
        return f"{self.model} in {self.rule}, {self.serving}"

    @property
    def serving(self) -> str:
        """`4 workers`, or `2 models`."""
        return f"{self.workers} {'models' if self.multi else 'worker' if self.workers == 1 else 'workers'}"

    @property
    def rule(self) -> str:
        """The key in RULE. Several workers share the two cores of the measurement, so each has one thread."""
        return f"{self.precision}, one thread" if self.workers > 1 and not self.multi else self.precision

    def needed_mb(self, weights: int) -> int:
        """The memory that the rule gives; weights: bytes in fp32."""
        base, copies = RULE[self.rule]
        return round(FRONT_MB + self.workers * (base + copies * weights / 1e6))


@dataclass(frozen=True, slots=True)
class Measured:
    """A case and its memory: bytes of all processes (PSS) after the requests, and the peak of its cgroup."""

    case: Case
    weights: int
    memory: int
    peak: int

    @property
    def share(self) -> float:
        """The share of the rule's memory that was used."""
        return self.memory / 1e6 / self.case.needed_mb(self.weights)


def cases(model: str) -> list[Case]:
    """The measurements of one model."""
    return [
        *(Case(model, precision) for precision in ("fp32", "bf16", "int8")),
        *(Case(model, workers=workers) for workers in (2, 4)),
        Case(model, workers=2, multi=True),
    ]


def make_requests() -> list[Request]:
    """The requests, always the same ones."""
    _, requests = questions.from_environment(2000, SEED)
    long = [each for each in requests if len(each.context) > LONGEST]
    sizes = [LONGEST * (number + 1) // LENGTHS for number in range(LENGTHS)] + [SHORT] * (REQUESTS - LENGTHS)
    return [Request(each.question, each.context[:size]) for each, size in zip(itertools.cycle(long), sizes)]


def save_model(folder: Path, shape: str, requests: Sequence[Request]) -> None:
    """A BERT with this shape and random weights, and its graphs in fp32 and int8."""
    layers, hidden, heads = SHAPES[shape]
    small.write_model(folder, pretrained_model(), layers, hidden, heads, 4 * hidden)
    rows = [
        {"id": str(number), "question": each.question, "context": each.context, "answers": []}
        for number, each in enumerate(requests[-4:])
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as data:
        data.write("".join(f"{json.dumps(row)}\n" for row in rows))
        data.flush()
        module = [sys.executable, "-m", "berth.runtime.engines.quantize", str(folder), str(folder / "openvino")]
        few = ["--calibration", data.name, "--validation", data.name, "--few-questions", "--max-f1-loss", "100"]
        process = subprocess.run([*module, *few], stdout=sys.stderr, check=False)
    if process.returncode:
        raise UserError(f"the graphs of {shape} can't be made: see the output above.")


def measure(
    client: DockerClient, image: str, folder: Path, case: Case, cores: Sequence[int], requests: Sequence[Request]
) -> Measured:
    """Start a container with the rule's memory, send requests, and measure it; UserError if it does not answer."""
    weights = (folder / "model.safetensors").stat().st_size
    environment = {"BERTH_PRECISION": case.precision}
    if case.multi:
        environment |= {"SAGEMAKER_MULTI_MODEL": "true"}
    else:
        environment |= {"SAGEMAKER_MODEL_SERVER_WORKERS": str(case.workers)}
    side = Side(f"{case.model}-{case.precision}-{case.workers}", image, folder, environment)
    limit = case.needed_mb(weights) * 1_000_000
    at = "/opt/ml/models/one" if case.multi else "/opt/ml/model"
    with running(client, side, cores, None, at, limit) as server:
        if case.multi:
            _ask_models(server, case.workers, requests)
        else:
            load = closed_loop(server.port, [each.body for each in requests], AT_ONCE)
            if failed := [reply.status for reply in load.replies if reply.status != http.client.OK]:
                raise UserError(f"{side.name} answers {len(failed)} requests with {failed[0]} in {limit / 1e6:.0f} MB.")
        return Measured(case, weights, server.memory(), peak_of(server.container))


def _ask_models(server: Server, models: int, requests: Sequence[Request]) -> None:
    for number in range(models):
        name = f"model-{number}"
        _post(server.port, "/models", json.dumps({"model_name": name, "url": "/opt/ml/models/one"}).encode())
        for each in requests:
            _post(server.port, f"/models/{name}/invoke", each.body)


def _post(port: int, path: str, body: bytes) -> None:
    status, text = ask(port, "POST", path, body)
    if status != http.client.OK:
        raise UserError(f"POST {path} ended with {status}: {text}")


def render(lines: Sequence[str], rows: Sequence[Measured], skipped: Sequence[Case]) -> str:
    """The page of results."""
    table = []
    for row in rows:
        figures = [f"{row.memory / 1e6:,.0f}", f"{row.share:.0%}", f"{row.peak / 1e6:,.0f}"]
        cells = [row.case.model, f"{row.weights / 1e6:.0f}", row.case.rule, row.case.serving]
        table.append(report.row(*cells, f"{row.case.needed_mb(row.weights):,}", *figures))
    notes = [
        "",
        f"Memory: all processes after {REQUESTS} requests, {AT_ONCE} at once. The peak is the cgroup's, without pages",
        "that the kernel had read for another container. Each container was limited to the rule's memory.",
        *(f"Not measured, because this machine lacks the memory: {case}." for case in skipped),
    ]
    return report.page("Memory of the inference image", lines, *report.table(COLUMNS, table), *notes)


def _measured(options: argparse.Namespace, client: DockerClient, cores: Sequence[int]) -> Iterator[Measured | Case]:
    """Each case's figures, or the case itself if it needs more than --most-mb."""
    requests = make_requests()
    for model in options.models:
        with tempfile.TemporaryDirectory(prefix="berth-bench-") as scratch:
            folder = Path(scratch)
            save_model(folder, model, requests)
            weights = (folder / "model.safetensors").stat().st_size
            for case in cases(model):
                if case.needed_mb(weights) > options.most_mb:
                    yield case
                    continue
                row = measure(client, options.image, folder, case, cores, requests)
                print(f"{case}: {row.memory / 1e6:.0f} MB, {row.share:.0%}, peak {row.peak / 1e6:.0f}", file=sys.stderr)
                yield row


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("sizes", __doc__)
    parser.add_argument("--image", default=f"berth-serve:{pins.DEFAULT_PROFILE}", help="default: %(default)s")
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=list(SHAPES), help="default: all")
    parser.add_argument(
        "--most-mb", type=program.positive, default=6_000, help="skip larger containers (default: %(default)s)"
    )
    options = parser.parse_args(words)
    cores = machine.parse_cores(None)[:2]  # two workers have one thread each
    client = engine.connect()
    sides.require_image(client, options.image)
    results = list(_measured(options, client, cores))
    rows = [each for each in results if isinstance(each, Measured)]
    lines = [
        f"{program.setting('sizes', words, client, cores)}.",
        sides.describe(client, Side("ours", options.image, Path())),
    ]
    skipped = [each for each in results if isinstance(each, Case)]
    print(render(lines, rows, skipped))
    return 0 if all(0.5 <= row.share <= 1 for row in rows) else 1


if __name__ == "__main__":
    program.end_with(main)
