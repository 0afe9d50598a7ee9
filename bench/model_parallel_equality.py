"""Pipelines of the open model parallel library against one process: loss, gradients, parameters, momentum.

Usage: python -m bench.model_parallel_equality [--ranks 2,4,8] [> bench/results/….md]

Every model of smdistributed/tests/pipeline_models.py, 2 and 4 partitions, 1 and 2 replicas, cluster and
spread, interleaved and simple, 1 to 8 microbatches, some with a deterministic server; then module trees, partitions and
schedules that hypothesis draws. Nine steps of SGD with momentum, of other lengths each, in fp32 without dropout.
Cases run one after the other in one launch for each number of ranks, as processes of this machine. BERTH_MINILM names a
folder with the weights of a MiniLM; without it they are random. Exit code 1 where one is further off than its limit.
"""

import itertools
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch
import transformers

from bench import program, report
from bench.machine import this_cpu
from bench.scripts.model_parallel_launch import rank_jobs
from berth.images.build.revision import read_revision
from berth.images.pins import pins

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
"""Microbatches of MiniLM and of 8 ranks, which take long, and of a deterministic server."""
OPENING = f"""{rank_jobs.OPENING}
import json, logging
logging.disable(logging.WARNING)
import new_start, pipeline_cases, pipeline_trees
smp.init({{"partitions": 2, **new_start.gpu_options()}})
rows = open(f"{{RESULTS}}/rows", "a") if smp.rank() == 0 else None
def note(found):
    if rows:
        print(json.dumps(found), file=rows, flush=True)
"""
PRODUCT = """
for kind, config in json.loads(os.environ["CASES"]):
    note({"kind": kind, "config": config, **pipeline_cases.equality(kind, config)})
result(None)
"""
TREES = """
count, steps, partitions, seed = json.loads(os.environ["CASES"])
found, problem = pipeline_trees.compared(count, steps, partitions, seed)
for each in found:
    note({"kind": "tree", "config": {}, **each})
result(problem)
"""


def product(size: int, models: Sequence[str], asked: Sequence[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The cases of a launch of `size` ranks with these numbers of microbatches; neighbours have one reference."""
    for kind, partitions in itertools.product(models, (2, 4)):
        if size not in (partitions, 2 * partitions):
            continue
        placements = ("cluster", "spread") if size > partitions else ("cluster",)
        counts = [count for count in asked if count in SOME or (kind != "minilm" and size < 8)]
        for count, pipeline, placement in itertools.product(counts, ("interleaved", "simple"), placements):
            config = {"partitions": partitions, "microbatches": count, "pipeline": pipeline}
            yield kind, {**config, "placement_strategy": placement, "ddp": True}
            if count in SOME and pipeline == "interleaved" and size == partitions:
                yield kind, {**config, "placement_strategy": placement, "deterministic_server": True}


def describe(found: dict[str, Any], size: int) -> tuple[str, ...]:
    """What a case has in common with those that differ from it by their microbatches only: a row's first cells."""
    config = found["config"]
    replicas = size // config["partitions"]
    fixed = ", deterministic" if config.get("deterministic_server") else ""
    placement = config["placement_strategy"] if replicas > 1 else "–"
    return found["kind"], str(config["partitions"]), str(replicas), placement, f"{config['pipeline']}{fixed}"


def each_row(found: Sequence[tuple[int, dict[str, Any]]]) -> Iterator[str]:
    """A row for the cases that differ by their microbatches only, with their largest differences."""
    grouped: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for size, each in found:
        grouped.setdefault(describe(each, size), []).append(each)
    for first, group in grouped.items():
        counts = ", ".join(str(each["config"]["microbatches"]) for each in group)
        yield report.row(*first, counts, *(difference(group, name) for name in QUANTITIES), equal(group))


def difference(group: Sequence[dict[str, Any]], name: str) -> str:
    """The largest one, with its case's limit where that is above 2e-6."""
    worst = max(group, key=lambda each: each["found"][name])
    limit = worst["limits"][name]
    return f"{worst['found'][name]:.1e}" + (f" (limit {limit:.1e})" if limit > 2e-6 else "")


def equal(group: Sequence[dict[str, Any]]) -> str:
    """Whether all cases are within their limits; the limit is named where it is none at all."""
    exact = all(not any(each["limits"].values()) for each in group)
    return "no" if any(each["bad"] for each in group) else "to the last bit" if exact else "yes"


def follow(path: Path, ended: threading.Event) -> None:
    """Says on standard error which case is done, as they end."""
    at = 0
    while not ended.wait(1.0):
        with path.open() as file:
            file.seek(at)
            for line in file:
                found = json.loads(line)
                print(found["case"], found["found"], file=sys.stderr, flush=True)
            at = file.tell()


def launch(body: str, cases: Any, size: int, limit: float) -> tuple[list[dict[str, Any]], str]:
    """What rank 0 noted, and what went wrong: that of a launch that fails or hangs is what it noted until then."""
    with tempfile.TemporaryDirectory(prefix="berth-equality-") as made:
        path = Path(made) / "rows"
        path.touch()
        ended = threading.Event()
        watch = threading.Thread(target=follow, args=(path, ended))
        watch.start()
        try:
            problem = rank_jobs.run(body, size, Path(made), OPENING, limit=limit, CASES=json.dumps(cases))[0] or ""
        except Exception as error:  # the rows that there are go into the table
            problem = f"{type(error).__name__}: {error}"
        finally:
            ended.set()
            watch.join()
        return [json.loads(line) for line in path.read_text().splitlines()], problem


def kind_rows(cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    """For each kind: how many cases, how many of them without any difference, and the largest differences."""
    for kind in dict.fromkeys(each["kind"] for each in cases):
        group = [each for each in cases if each["kind"] == kind]
        same = sum(not any(each["found"].values()) for each in group)
        said = MODELS.get(kind, "random trees, partitions and schedules")
        yield report.row(
            kind, said, str(len(group)), str(same), *(difference(group, name) for name in QUANTITIES), equal(group)
        )


def gpus() -> str:
    """The GPUs of this machine; ranks use them, and share them if there are fewer than ranks."""
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return f"models on {len(names)} × {names[0]}" if names else "no GPU"


def show(found: Sequence[tuple[int, dict[str, Any]]], problems: Sequence[str], seconds: float, words: str) -> None:
    """The page of results."""
    good = not problems and not any(each["bad"] for _, each in found)
    weights = "real weights" if os.environ.get("BERTH_MINILM") else "random weights"
    print(f"# Pipelines against one process, {date.today()}\n")
    print(
        f"`{words}`, ranks as processes over gloo, torch {torch.__version__}, transformers {transformers.__version__}, "
        f"{this_cpu()}, {os.cpu_count()} cores, {gpus()}, kit {read_revision(pins.ROOT)}, {seconds:.0f} s. "
        f"MiniLM has {weights} and, of its vocabulary, what the batches use.\n"
    )
    print(
        "Largest difference over nine steps of SGD with momentum, divided by the largest value of its kind (all "
        "gradients of a step, all parameters, …). The limit is 2e-6, or three times what two runs of one process with "
        "other microbatches differ by, if that is more. On CPUs it is 0 (to the last bit) with a deterministic server "
        "if both sum the same numbers in one order.\n"
    )
    print(f"{len(found)} cases. {'All are equal.' if good else 'Not all are equal.'}\n")
    names = ["kind", "model", "cases", "without any difference", *QUANTITIES, "equal"]
    print("\n".join(report.table(names, kind_rows([each for _, each in found]))))
    for problem in problems:
        print(f"\n```\n{problem[-3000:]}\n```")
    print("\n## By partitions, replicas and schedule\n")
    drawn = [(size, each) for size, each in found if each["kind"] in MODELS]
    print("\n".join(report.table(COLUMNS, each_row(drawn))))


def main(words: Sequence[str]) -> int:
    parser = program.make_parser("model_parallel_equality", __doc__)
    parser.add_argument("--ranks", default="2,4,8", metavar="LIST", help="numbers of ranks, of 2, 4 and 8")
    parser.add_argument("--models", default=",".join(MODELS), metavar="LIST", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--microbatches", default="1,2,3,4,5,6,7,8", metavar="LIST", help="1,2,3,4,5,6,7,8")
    parser.add_argument("--trees", type=program.positive, default=200, metavar="N", help="cases that are drawn; 200")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    asked = parser.parse_args(words)
    sizes, counts = ([int(each) for each in text.split(",")] for text in (asked.ranks, asked.microbatches))
    found: list[tuple[int, dict[str, Any]]] = []
    problems: list[str] = []
    began = time.monotonic()
    for size in sizes:
        cases = list(product(size, asked.models.split(","), counts))
        share = asked.trees // 2 if size in (2, 4) else 0
        drawn = (share, 9, [2] if size == 2 else [2, 4], asked.seed)
        launches = [(PRODUCT, cases, 60.0 + 60.0 * len(cases)), (TREES, drawn, 60.0 + 60.0 * share)]
        for body, given, limit in launches[: 2 if share else 1]:
            rows, problem = launch(body, given, size, limit)
            found += [(size, each) for each in rows]
            problems += [problem] if problem else []
    said = " ".join(["python -m bench.model_parallel_equality", *words])
    show(found, problems, time.monotonic() - began, said)
    return 1 if problems or any(each["bad"] for _, each in found) else 0


if __name__ == "__main__":
    program.end_with(main)
