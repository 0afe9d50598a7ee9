"""The model parallel library against one process: loss, gradients, parameters, momentum.

Usage: python -m bench.model_parallel_equality [--set pipelines] [--ranks 2,4,8] [> bench/results/….md]

There are two sets of cases. `pipelines` runs the models of MODELS with 2 and 4 partitions, 1 and 2 replicas, cluster
and spread placement, interleaved and simple schedule, 1 to 8 microbatches, and some cases with a deterministic server;
then module trees, partitions and schedules drawn by hypothesis. `covering` combines tensor, sharded and pipeline
parallelism: every possible pair of values of the factors in bench/covering.py occurs in a case, and a third of the
cases have random delays.

A case has nine steps of SGD with momentum, with batches of different lengths, in fp32 without dropout. The cases of one
number of ranks run one after the other in one launch, as processes of this machine. BERTH_MINILM is a folder with
MiniLM's weights; without it they are random. Exit code 1 if a difference exceeds its limit.
"""

import argparse
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

from bench import covering, program, report
from bench.covering_report import QUANTITIES, covering_lines, difference
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
COLUMNS = ["model", "partitions", "replicas", "placement", "schedule", "microbatches", *QUANTITIES, "equal"]
SOME = (1, 4, 8)
"""Numbers of microbatches for MiniLM and 8 ranks, which are slow, and for a deterministic server."""
OPENING = f"""{rank_jobs.OPENING}
import json, logging
logging.disable(logging.WARNING)
import new_start, pipeline_cases, pipeline_trees
smp.init({{"ddp": True, **new_start.gpu_options()}})
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


COVERING = """
import faulthandler
cases, limit = json.loads(os.environ["CASES"])
for case in cases:
    faulthandler.dump_traceback_later(limit, exit=True)
    training = pipeline_cases.Training(**case["training"])
    config, embeddings = case["config"], case["embeddings"]
    note({**case, **pipeline_cases.equality(case["kind"], config, embeddings=embeddings, training=training)})
faulthandler.cancel_dump_traceback_later()
result(None)
"""
CASE_LIMIT = 300.0
"""Seconds after which a case of the covering set counts as hanging: a rank then prints where it waits, and ends."""
Results = list[tuple[int, dict[str, Any]]]
"""Number of ranks and result of each case."""


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


def pipelines(sizes: Sequence[int], options: argparse.Namespace) -> tuple[Results, list[str]]:
    """The results of the set `pipelines`, and the problems of its launches."""
    counts = [int(each) for each in options.microbatches.split(",")]
    models = [each for each in options.models.split(",") if each in MODELS]
    results: Results = []
    problems: list[str] = []
    for size in sizes:
        cases = list(product(size, models, counts))
        share = options.trees // 2 if size in (2, 4) else 0
        drawn = (share, 9, [2] if size == 2 else [2, 4], options.seed)
        launches = [(PRODUCT, cases, 60.0 + 60.0 * len(cases))] if cases else []
        launches += [(TREES, drawn, 60.0 + 60.0 * share)] if share else []
        for body, batch_of_cases, limit in launches:
            rows, problem = launch(body, batch_of_cases, size, limit)
            results += [(size, each) for each in rows]
            problems += [problem] if problem else []
    return results, problems


def covering_set(sizes: Sequence[int], options: argparse.Namespace) -> tuple[Results, list[str]]:
    """The results of the covering set, and the problems of its launches.

    A case that raises or hangs ends its launch. It counts as different, its error is printed to stderr, and another
    launch runs the cases after it.
    """
    results: Results = []
    problems: list[str] = []
    for size in sizes:
        cases = covering.cases_of(size, options.models.split(","), options.seed)
        if options.most:
            cases = cases[:: -(-len(cases) // options.most) or 1]
        while cases:
            rows, problem = launch(COVERING, (cases, CASE_LIMIT), size, 60.0 + CASE_LIMIT * len(cases))
            results += [(size, covering.checked(each)) for each in rows]
            failed, cases = cases[len(rows) : len(rows) + 1], cases[len(rows) + 1 :]
            results += [(size, covering.without_result(each, covering.reason_of(problem))) for each in failed]
            problems += [problem] if problem and not failed else []
            if problem:
                print(*(each["factors"] for each in failed), problem, sep="\n", file=sys.stderr, flush=True)
    return results, problems


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


def render(cases: Results, problems: Sequence[str]) -> Iterator[str]:
    """The lines of the set `pipelines`."""
    yield f"{len(cases)} cases. {verdict(cases, problems)}\n"
    names = ["kind", "model", "cases", "without any difference", *QUANTITIES, "equal"]
    yield from report.table(names, kind_rows([each for _, each in cases]))
    for problem in problems:
        yield f"\n```\n{problem[-3000:]}\n```"
    yield "\n### By partitions, replicas and schedule\n"
    drawn = [(size, each) for size, each in cases if each["kind"] in MODELS]
    yield from report.table(COLUMNS, each_row(drawn))


def verdict(cases: Results, problems: Sequence[str]) -> str:
    """Whether all cases are equal."""
    good = not problems and not any(each["bad"] for _, each in cases)
    return "All are equal." if good else "Not all are equal."


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = program.make_parser("model_parallel_equality", __doc__)
    parser.add_argument("--set", choices=("pipelines", "covering", "both"), default="both", help="cases to run; both")
    parser.add_argument("--ranks", default="1,2,4,8", metavar="LIST", help="numbers of ranks; %(default)s")
    models = list(dict.fromkeys([*MODELS, *(each.partition("-")[0] for each in covering.KINDS)]))
    parser.add_argument("--models", default=",".join(models), metavar="LIST", help=f"of {', '.join(models)}")
    parser.add_argument("--microbatches", default="1,2,3,4,5,6,7,8", metavar="LIST", help="pipelines: %(default)s")
    parser.add_argument("--trees", type=program.positive, default=200, metavar="N", help="pipelines: drawn cases; 200")
    parser.add_argument(
        "--most", type=program.positive, metavar="N", help="covering: only N cases of each number of ranks"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the drawn cases and of the covering set; 0")
    return parser.parse_args(words)


def main(words: Sequence[str]) -> int:
    options = parsed(words)
    sizes = [int(each) for each in options.ranks.split(",")]
    began = time.monotonic()
    lines, bad = [], False
    sets = {"pipelines": (pipelines, render), "covering": (covering_set, covering_lines)}
    for name, (run, described) in sets.items():
        if options.set in (name, "both"):
            started = time.monotonic()
            results, problems = run(sizes, options)
            bad = bad or bool(problems) or any(each["bad"] for _, each in results)
            lines += [f"\n## Set {name}, {time.monotonic() - started:.0f} s\n", *described(results, problems)]
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
    print(report.page("Model parallelism against one process", setting, *lines))
    return 1 if bad else 0


if __name__ == "__main__":
    program.end_with(main)
