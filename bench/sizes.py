"""How much memory the inference image takes: three sizes of model, each precision, several workers, several models.

Usage: python -m bench.sizes [--image IMAGE] [--models MiniLM-L6 bert-base …] > bench/results/DATE-sizes.md

Models have the real shapes and random weights, which take the same memory. Each row is a container of its own, limited
to what the rule of docs/size-it.md allows. It is started, asked 100 questions, 4 at once, a quarter of which go through
all lengths of a window, and weighed. Ends with exit code 1 if a row does not answer within its limit, or takes less
than half of it, for then the rule is wrong. Wants an engine on this machine, root, `make setup-tests`, and up to
`--most-mb` of memory. Times mean nothing here.
"""

import argparse
import http.client
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from docker import DockerClient

from bench import machine, program, report
from bench.serving import questions, sides
from bench.serving.container import Server, running
from bench.serving.load import closed_loop
from bench.serving.our_image import SEED
from bench.serving.peak_memory import peak_of
from bench.serving.questions import Asked
from bench.serving.request import ask
from bench.serving.sides import Side
from berth.common import engine
from berth.common.errors import UserError
from berth.images.pins import pins
from berth.local.demo import pretrained_model

FRONT_MB = 100
RULE = {"fp32": (160, 3.5), "fp32, one thread": (160, 2.0), "bf16": (160, 2.5), "int8": (320, 1.5)}
"""Memory of a container: FRONT_MB, and for each worker so many megabytes and so many times the size of its fp32 file.
With one thread for each worker, as with a worker per core, the engine keeps the weights once less."""
SHAPES = {"MiniLM-L6": (6, 384, 12), "bert-base": (12, 768, 12), "bert-large": (24, 1024, 16)}
"""Layers, hidden size, heads."""
COLUMNS = (
    *("model", " fp32 weights, MB", "precision", "workers"),
    *(" rule, MB", " memory (PSS), MB", " of the rule", " peak, MB"),
)
REQUESTS, AT_ONCE = 100, 4
LENGTHS, LONGEST, SHORT = 24, 1600, 100
"""So many requests go through the lengths of a window, by a context of up to LONGEST characters, for the engine keeps
kernels for each; the context of the others is SHORT."""


@dataclass(frozen=True, slots=True)
class Case:
    """What a container serves: `workers` with one model, or, if `multi`, so many models with a worker each."""

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
        """The row of RULE. Several workers share the cores of the measurement, which gives each one thread."""
        return f"{self.precision}, one thread" if self.workers > 1 and not self.multi else self.precision

    def needed_mb(self, weights: int) -> int:
        """What the rule allows it, for weights of so many bytes in fp32."""
        base, copies = RULE[self.rule]
        return round(FRONT_MB + self.workers * (base + copies * weights / 1e6))


@dataclass(frozen=True, slots=True)
class Weighed:
    """A case and what it took: bytes of all processes (PSS) after the requests, and the most of its cgroup."""

    case: Case
    weights: int
    memory: int
    peak: int

    @property
    def share(self) -> float:
        """Of what the rule allows."""
        return self.memory / 1e6 / self.case.needed_mb(self.weights)


def cases(model: str) -> list[Case]:
    """What is measured of a model."""
    return [
        *(Case(model, precision) for precision in ("fp32", "bf16", "int8")),
        *(Case(model, workers=workers) for workers in (2, 4)),
        Case(model, workers=2, multi=True),
    ]


def requests() -> list[Asked]:
    """The requests, the same each time."""
    file = questions.squad_file(os.environ)
    long = [
        each
        for each in questions.make_requests(questions.read_articles(file), 2000, SEED)
        if len(each.context) > LONGEST
    ]
    sizes = [LONGEST * (number + 1) // LENGTHS for number in range(LENGTHS)] + [SHORT] * (REQUESTS - LENGTHS)
    return [Asked(each.question, each.context[:size]) for each, size in zip(itertools.cycle(long), sizes)]


def save_model(folder: Path, shape: str, asked: Sequence[Asked]) -> None:
    """A BERT of that shape with random weights, the demo's tokenizer, and its graphs in fp32 and int8."""
    import torch
    from transformers import BertConfig, BertForQuestionAnswering

    layers, hidden, heads = SHAPES[shape]
    torch.manual_seed(3)
    config = BertConfig(
        num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads, intermediate_size=4 * hidden
    )
    BertForQuestionAnswering(config).save_pretrained(folder)
    source = pretrained_model()
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        (folder / name).write_bytes((source / name).read_bytes())
    rows = [
        {"id": str(number), "question": each.question, "context": each.context, "answers": []}
        for number, each in enumerate(asked[-4:])
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as data:
        data.write("".join(f"{json.dumps(row)}\n" for row in rows))
        data.flush()
        module = [sys.executable, "-m", "berth.runtime.engines.quantize", str(folder), str(folder / "openvino")]
        few = ["--calibration", data.name, "--validation", data.name, "--few-questions", "--max-f1-loss", "100"]
        made = subprocess.run([*module, *few], stdout=sys.stderr, check=False)
    if made.returncode:
        raise UserError(f"the graphs of {shape} can't be made: see above.")


def weigh(
    client: DockerClient, image: str, folder: Path, case: Case, cores: Sequence[int], asked: Sequence[Asked]
) -> Weighed:
    """Start a container with the rule's memory, ask it, and weigh it; UserError if it does not answer."""
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
            _ask_models(server, case.workers, asked)
        else:
            load = closed_loop(server.port, [each.body for each in asked], AT_ONCE)
            if failed := [reply.status for reply in load.replies if reply.status != http.client.OK]:
                raise UserError(f"{side.name} answers {len(failed)} requests with {failed[0]} in {limit / 1e6:.0f} MB.")
        return Weighed(case, weights, server.memory(), peak_of(server.container))


def _ask_models(server: Server, models: int, asked: Sequence[Asked]) -> None:
    for number in range(models):
        name = f"model-{number}"
        _post(server.port, "/models", json.dumps({"model_name": name, "url": "/opt/ml/models/one"}).encode())
        for each in asked:
            _post(server.port, f"/models/{name}/invoke", each.body)


def _post(port: int, path: str, body: bytes) -> None:
    status, text = ask(port, "POST", path, body)
    if status != http.client.OK:
        raise UserError(f"POST {path} ended with {status}: {text}")


def render(lines: Sequence[str], rows: Sequence[Weighed], skipped: Sequence[Case]) -> str:
    """The page of results."""
    table = []
    for row in rows:
        figures = [f"{row.memory / 1e6:,.0f}", f"{row.share:.0%}", f"{row.peak / 1e6:,.0f}"]
        cells = [row.case.model, f"{row.weights / 1e6:.0f}", row.case.rule, row.case.serving]
        table.append(report.row(*cells, f"{row.case.needed_mb(row.weights):,}", *figures))
    notes = [
        "",
        f"Memory is that of all processes after {REQUESTS} requests, {AT_ONCE} at once. The peak is the cgroup's; what",
        "the kernel has read for another container is not in it. Each container was limited to the rule's memory.",
        *(f"Not measured, because this machine lacks the memory: {case}." for case in skipped),
    ]
    return report.page("Memory of the inference image", lines, *report.table(COLUMNS, table), *notes)


def _measured(options: argparse.Namespace, client: DockerClient, cores: Sequence[int]) -> Iterator[Weighed | Case]:
    """Each case's figures, or the case itself where it would need more than --most-mb."""
    asked = requests()
    for model in options.models:
        with tempfile.TemporaryDirectory(prefix="berth-bench-") as scratch:
            folder = Path(scratch)
            save_model(folder, model, asked)
            weights = (folder / "model.safetensors").stat().st_size
            for case in cases(model):
                if case.needed_mb(weights) > options.most_mb:
                    yield case
                    continue
                row = weigh(client, options.image, folder, case, cores, asked)
                print(f"{case}: {row.memory / 1e6:.0f} MB, {row.share:.0%}, peak {row.peak / 1e6:.0f}", file=sys.stderr)
                yield row


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("sizes", __doc__)
    parser.add_argument("--image", default=f"berth-serve:{pins.DEFAULT_PROFILE}", help="default: %(default)s")
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=list(SHAPES), help="default: all")
    parser.add_argument("--most-mb", type=program.positive, default=6_000, help="of a container; default: %(default)s")
    options = parser.parse_args(words)
    cores = machine.cores_of(None)[:2]  # two workers have one thread each
    client = engine.connect()
    sides.require_image(client, options.image)
    found = list(_measured(options, client, cores))
    rows = [each for each in found if isinstance(each, Weighed)]
    lines = [
        f"{program.setting('sizes', words, client, cores)}.",
        sides.describe(client, Side("ours", options.image, Path())),
    ]
    skipped = [each for each in found if isinstance(each, Case)]
    print(render(lines, rows, skipped))
    return 0 if all(0.5 <= row.share <= 1 for row in rows) else 1


if __name__ == "__main__":
    program.end_with(main)
