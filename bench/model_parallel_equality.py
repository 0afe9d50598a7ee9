"""Pipelines of the model parallel library against one process: loss, gradients, parameters, momentum.

Usage: python -m bench.model_parallel_equality [--ranks 2,4,8] [> bench/results/….md]

Runs every model of smdistributed/tests/pipeline_models.py with 2 and 4 partitions, 1 and 2 replicas, cluster and spread
placement, interleaved and simple schedule, 1 to 8 microbatches, and some cases with a deterministic server; then module
trees, partitions and schedules drawn by hypothesis. A case has nine steps of SGD with momentum, with batches of
different lengths, in fp32 without dropout. The cases of one number of ranks run one after the other in one launch, as
processes of this machine. BERTH_MINILM is a folder with MiniLM's weights; without it they are random. Exit code 1 if a
difference exceeds its limit.
"""

import itertools
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from bench import program, report
from bench.scripts.model_parallel_launch import rank_jobs

MODELS = {
    "mlp": "MLP, in-place ReLU",
    "skips": "skips between partitions, changes in place",
    "dicts": "several outputs, in dicts",
    "vit": "ViT, image classification",
    "roberta": "RoBERTa, classification, loss inside",
    "bert": "BERT, question answering",
    "gpt2": "GPT-2, tied embeddings, loss inside",
    "minilm": "MiniLM, question answering",
}
QUANTITIES = ("loss", "gradients", "parameters", "momentum")
COLUMNS = ["model", "partitions", "replicas", "placement", "schedule", "microbatches", *QUANTITIES, "equal"]
SOME = (1, 4, 8)
"""Numbers of microbatches for MiniLM and 8 ranks, which are slow, and for a deterministic server."""
OPENING = f"""{rank_jobs.OPENING}
import json, logging
logging.disable(logging.WARNING)
import new_start, pipeline_cases, pipeline_trees
smp.init({{"partitions": 2, **new_start.gpu_options()}})
rows = open(f"{{RESULTS}}/rows", "a") if smp.rank() == 0 else None
def note(row):
    if rows:
        print(json.dumps(row), file=rows, flush=True)
"""
PRODUCT = """
for kind, config in json.loads(os.environ["CASES"]):
    note({"kind": kind, "config": config, **pipeline_cases.equality(kind, config)})
result(None)
"""
TREES = """
count, steps, partitions, seed = json.loads(os.environ["CASES"])
cases, problem = pipeline_trees.compared(count, steps, partitions, seed)
for each in cases:
    note({"kind": "tree", "config": {}, **each})
result(problem)
"""


def product(size: int, models: Sequence[str], microbatches: Sequence[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The cases of a launch with `size` ranks, in an order in which neighbours share a reference."""
    for kind, partitions in itertools.product(models, (2, 4)):
        if size not in (partitions, 2 * partitions):
            continue
        placements = ("cluster", "spread") if size > partitions else ("cluster",)
        counts = [count for count in microbatches if count in SOME or (kind != "minilm" and size < 8)]
        for count, pipeline, placement in itertools.product(counts, ("interleaved", "simple"), placements):
            config = {"partitions": partitions, "microbatches": count, "pipeline": pipeline}
            yield kind, {**config, "placement_strategy": placement, "ddp": True}
            if count in SOME and pipeline == "interleaved" and size == partitions:
                yield kind, {**config, "placement_strategy": placement, "deterministic_server": True}


def describe(case: dict[str, Any], size: int) -> tuple[str, ...]:
    """The first cells of a row, which are equal for cases that differ only in their microbatches."""
    config = case["config"]
    replicas = size // config["partitions"]
    fixed = ", deterministic" if config.get("deterministic_server") else ""
    placement = config["placement_strategy"] if replicas > 1 else "–"
    return case["kind"], str(config["partitions"]), str(replicas), placement, f"{config['pipeline']}{fixed}"


def each_row(cases: Sequence[tuple[int, dict[str, Any]]]) -> Iterator[str]:
    """A row for the cases that differ only in their microbatches, with their largest differences."""
    grouped: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for size, each in cases:
        grouped.setdefault(describe(each, size), []).append(each)
    for first, group in grouped.items():
        counts = ", ".join(str(each["config"]["microbatches"]) for each in group)
        yield report.row(*first, counts, *(difference(group, name) for name in QUANTITIES), equal(group))


def difference(group: Sequence[dict[str, Any]], name: str) -> str:
    """The largest difference of a group, with its case's limit if that is above 2e-6."""
    worst = max(group, key=lambda each: each["errors"][name])
    limit = worst["limits"][name]
    return f"{worst['errors'][name]:.1e}" + (f" (limit {limit:.1e})" if limit > 2e-6 else "")


def equal(group: Sequence[dict[str, Any]]) -> str:
    """Whether all cases are within their limits, or equal to the last bit if all limits are 0."""
    exact = all(not any(each["limits"].values()) for each in group)
    return "no" if any(each["bad"] for each in group) else "to the last bit" if exact else "yes"


def follow(path: Path, ended: threading.Event) -> None:
    """Print each completed case to stderr."""
    position = 0
    while not ended.wait(1.0):
        with path.open() as file:
            file.seek(position)
            for line in file:
                case = json.loads(line)
                print(case["case"], case["errors"], file=sys.stderr, flush=True)
            position = file.tell()


def launch(body: str, cases: Any, size: int, limit: float) -> tuple[list[dict[str, Any]], str]:
    """Run a launch. Returns the rows that rank 0 wrote, also before a failure or a hang, and the problem or ""."""
    with tempfile.TemporaryDirectory(prefix="berth-equality-") as scratch:
        path = Path(scratch) / "rows"
        path.touch()
        ended = threading.Event()
        watch = threading.Thread(target=follow, args=(path, ended))
        watch.start()
        try:
            problem = rank_jobs.run(body, size, Path(scratch), OPENING, limit=limit, CASES=json.dumps(cases))[0] or ""
        except Exception as error:  # the rows written so far are still reported
            problem = f"{type(error).__name__}: {error}"
        finally:
            ended.set()
            watch.join()
        return [json.loads(line) for line in path.read_text().splitlines()], problem


def kind_rows(cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A row per kind: the number of cases, how many have no difference at all, and the largest differences."""
    for kind in dict.fromkeys(each["kind"] for each in cases):
        group = [each for each in cases if each["kind"] == kind]
        same = sum(not any(each["errors"].values()) for each in group)
        description = MODELS.get(kind, "random trees, partitions and schedules")
        yield report.row(
            kind,
            description,
            str(len(group)),
            str(same),
            *(difference(group, name) for name in QUANTITIES),
            equal(group),
        )


def gpus() -> str:
    """The GPUs of this machine; ranks use them, and share them if there are fewer than ranks."""
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return f"models on {len(names)} × {names[0]}" if names else "no GPU"


def render(cases: Sequence[tuple[int, dict[str, Any]]], problems: Sequence[str]) -> Iterator[str]:
    """The lines of the page below the setting."""
    good = not problems and not any(each["bad"] for _, each in cases)
    yield f"{len(cases)} cases. {'All are equal.' if good else 'Not all are equal.'}\n"
    names = ["kind", "model", "cases", "without any difference", *QUANTITIES, "equal"]
    yield from report.table(names, kind_rows([each for _, each in cases]))
    for problem in problems:
        yield f"\n```\n{problem[-3000:]}\n```"
    yield "\n## By partitions, replicas and schedule\n"
    drawn = [(size, each) for size, each in cases if each["kind"] in MODELS]
    yield from report.table(COLUMNS, each_row(drawn))


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("model_parallel_equality", __doc__)
    parser.add_argument("--ranks", default="2,4,8", metavar="LIST", help="numbers of ranks, of 2, 4 and 8")
    parser.add_argument("--models", default=",".join(MODELS), metavar="LIST", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--microbatches", default="1,2,3,4,5,6,7,8", metavar="LIST", help="default: %(default)s")
    parser.add_argument("--trees", type=program.positive, default=200, metavar="N", help="drawn cases; 200")
    parser.add_argument("--seed", type=int, default=0, help="seed of the drawn cases")
    options = parser.parse_args(words)
    sizes, counts = ([int(each) for each in text.split(",")] for text in (options.ranks, options.microbatches))
    results: list[tuple[int, dict[str, Any]]] = []
    problems: list[str] = []
    began = time.monotonic()
    for size in sizes:
        cases = list(product(size, options.models.split(","), counts))
        share = options.trees // 2 if size in (2, 4) else 0
        drawn = (share, 9, [2] if size == 2 else [2, 4], options.seed)
        launches = [(PRODUCT, cases, 60.0 + 60.0 * len(cases)), (TREES, drawn, 60.0 + 60.0 * share)]
        for body, batch_of_cases, limit in launches[: 2 if share else 1]:
            rows, problem = launch(body, batch_of_cases, size, limit)
            results += [(size, each) for each in rows]
            problems += [problem] if problem else []
    weights = "real weights" if os.environ.get("BERTH_MINILM") else "random weights"
    setting = [
        f"{program.setting('model_parallel_equality', words)}, ranks as processes over gloo, {gpus()}, "
        f"{time.monotonic() - began:.0f} s. MiniLM has {weights} and only the part of its vocabulary in the batches.",
        "",
        "Each cell is the largest difference over nine steps of SGD with momentum, divided by the largest value of its "
        "kind (all gradients of a step, all parameters, …). The limit is 2e-6, or three times the difference between "
        "two runs of one process with different numbers of microbatches, if that is larger. On CPUs it is 0 (to the "
        "last bit) with a deterministic server if both sides add the same numbers in the same order.",
    ]
    print(report.page("Pipelines against one process", setting, *render(results, problems)))
    return 1 if problems or any(each["bad"] for _, each in results) else 0


if __name__ == "__main__":
    program.end_with(main)
