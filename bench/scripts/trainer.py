"""transformers' run_glue.py of v4.26 with the model parallel library, against itself in one process.

Both run in the image of the profile cpu-hf4, with a small model of trainer_data.py. One process takes its batch in as
many parts as the job has microbatches, then whole; what these two differ by, times three, is the tolerance where that
is more than 2e-6: Adam divides by the root of gradients that are rounding alone.
"""

import json
from pathlib import Path

import torch

from bench.scripts import common
from bench.scripts import smdistributed_jobs as jobs
from bench.scripts.records import TOLERANCE, Comparison, largest_difference
from bench.scripts.smdistributed_jobs import Bench, Told
from bench.scripts.smdistributed_table import TRANSFORMERS, Run, Script
from berth.common.errors import UserError
from berth.local import opt_ml
from berth.local.job import TrainingJob

IMAGE = "berth-train:cpu-hf4"

RUN_GLUE = Script(
    f"{TRANSFORMERS}@820c46a7", "examples/pytorch/text-classification/run_glue.py", "4437aa188b66", edits=()
)
BATCH, STEPS = 16, 6
_OPTIONS = {"microbatches": 4, "placement_strategy": "spread", "pipeline": "interleaved", "optimize": "speed"}
RUNS = (
    Run(RUN_GLUE, 4, "", {**_OPTIONS, "partitions": 4, "ddp": True}, note="a RoBERTa of 8 layers of 64"),
    Run(RUN_GLUE, 2, "", {**_OPTIONS, "partitions": 2, "ddp": True}, note="a RoBERTa of 8 layers of 64"),
)


def make_data(bench: Bench) -> Path:
    """A folder with model/, train/ and validation/, made in the image; UserError where that fails."""
    code, made = bench.scratch / "code of the data", bench.scratch / "data"
    code.mkdir()
    (code / "make.py").write_text((jobs.DOUBLES / "trainer_data.py").read_text("utf-8"), "utf-8")
    made.mkdir()
    told = {"sagemaker_program": "make.py"}
    job = TrainingJob({}, code.parent / "output of the data", hyperparameters=told, code=code, checkpoints=made)
    ended = common.run_job(job, bench.images[IMAGE])
    if ended.exit_code != 0:
        raise UserError(f"{IMAGE} could not make the data of {RUN_GLUE.name}: {ended.reason}")
    return made


def run_ranks(run: Run, code: Path, data: Path, bench: Bench) -> Told:
    """The job, as its estimator asks for it."""
    return _started(jobs.asked(run), code, data, "ranks", bench)


def run_one(code: Path, data: Path, parts: int, bench: Bench) -> Told:
    """One process that takes its batch in `parts`."""
    return _started({}, code, data, f"one{parts}", bench, parts)


def compare(ranks: Path, same: Path, other: Path) -> Comparison:
    """Losses (of each step, of all, of the evaluation) and saved weights, of the ranks and of one process, twice."""
    apart = _differences(same, other)
    losses, weights = _differences(ranks, same)
    tolerance = max(TOLERANCE, 3 * max(apart))
    problems = [
        word for word, each in (("losses differ", losses), ("weights differ", weights)) if not each <= tolerance
    ]
    return Comparison(_figures(ranks), losses, weights, problems)


def _started(distribution: dict[str, str], code: Path, data: Path, name: str, bench: Bench, parts: int = 1) -> Told:
    record = code.parent / name
    record.mkdir()
    channels = {each: data / each for each in ("train", "validation")}
    told = {
        **{f"{each}_file": f"{opt_ml.CHANNELS_AT}/{each}/{each}.csv" for each in channels},
        **{"sagemaker_program": RUN_GLUE.name, "output_dir": f"{jobs.RECORD}/out", "max_seq_length": "64"},
        **{"max_steps": str(STEPS), "logging_steps": "1", "per_device_train_batch_size": str(BATCH // parts)},
        **{"gradient_accumulation_steps": str(parts), "max_grad_norm": "0", "learning_rate": "1e-3"},
        **{"per_device_eval_batch_size": str(BATCH), "save_strategy": "no", "disable_tqdm": "True"},
        **{"do_train": "True", "do_eval": "True"},
        **distribution,
    }
    job = TrainingJob(
        channels,
        output=code.parent / f"output of {name}",
        hyperparameters=told,
        environment={"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **bench.kit},
        model=data / "model",
        code=code,
        checkpoints=record,
        timeout=jobs.TIME_LIMIT,
    )
    ended = common.run_job(job, bench.images[IMAGE])
    return Told(record / "out", ended.exit_code, ended.reason, "\n".join(ended.lines), ended.seconds)


def _figures(out: Path) -> list[float]:
    results = json.loads((out / "all_results.json").read_text("utf-8"))
    steps = json.loads((out / "trainer_state.json").read_text("utf-8"))["log_history"]
    return [*(each["loss"] for each in steps if "loss" in each), results["train_loss"], results["eval_loss"]]


def _differences(one: Path, other: Path) -> tuple[float, float]:
    """Of the losses, those of the steps rounded by Trainer to four digits, and of the saved weights."""
    pairs = list(zip(_figures(one), _figures(other), strict=True))
    steps = max(abs(mine - his) - 1.01e-4 for mine, his in pairs[:-2])
    losses = max([steps, *(abs(mine - his) for mine, his in pairs[-2:])])
    mine, his = (torch.load(each / "pytorch_model.bin", weights_only=True) for each in (one, other))
    return losses, largest_difference(mine, his)
