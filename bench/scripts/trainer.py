"""transformers' run_glue.py of v4.26 with the model parallel library, against itself in one process.

Both run under a Python that has transformers 4.26, datasets and evaluate, with a small model of trainer_data.py. One
process takes its batch in as many parts as the job has microbatches, then whole; what these two differ by, times three,
is the tolerance where that is more than 2e-6: Adam divides by the root of gradients that are rounding alone.
"""

import json
import os
import subprocess
from pathlib import Path

import torch

from bench.scripts import direct
from bench.scripts.direct import Told
from bench.scripts.records import TOLERANCE, Comparison, largest_difference
from bench.scripts.smdistributed_table import TRANSFORMERS, Run, Script

RUN_GLUE = Script(
    f"{TRANSFORMERS}@820c46a7", "examples/pytorch/text-classification/run_glue.py", "4437aa188b66", edits=()
)
BATCH, STEPS = 16, 6
_OPTIONS = {"microbatches": 4, "placement_strategy": "spread", "pipeline": "interleaved", "optimize": "speed"}
RUNS = (
    Run(RUN_GLUE, 4, "", {**_OPTIONS, "partitions": 4, "ddp": True}, note="a RoBERTa of 8 layers of 64"),
    Run(RUN_GLUE, 2, "", {**_OPTIONS, "partitions": 2, "ddp": True}, note="a RoBERTa of 8 layers of 64"),
)


def make_data(python: Path, folder: Path) -> None:
    """Raises CalledProcessError, with the output on standard error, where that Python lacks what it takes."""
    words = [str(python), str(direct.DOUBLES / "trainer_data.py"), str(folder)]
    subprocess.run(words, check=True, env={**os.environ, **_quiet(folder)})


def run_ranks(run: Run, python: Path, code: Path, data: Path, library: Path) -> Told:
    """The job, started by torchrun."""
    options = json.dumps(run.parameters)
    told = {"SM_HP_MP_PARAMETERS": options, "SM_FRAMEWORK_PARAMS": '{"sagemaker_mpi_enabled": true}'}
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(run.ranks)]
    return _start([str(python), *launcher], code / run.script.name, data, "ranks", told | {"PYTHONPATH": str(library)})


def run_one(run: Run, python: Path, code: Path, data: Path, parts: int) -> Told:
    """One process that takes its batch in `parts`."""
    return _start([str(python)], code / run.script.name, data, f"one{parts}", {}, parts)


def compare(ranks: Path, same: Path, other: Path) -> Comparison:
    """Losses (of each step, of all, of the evaluation) and saved weights, of the ranks and of one process, twice."""
    apart = _differences(same, other)
    losses, weights = _differences(ranks, same)
    tolerance = max(TOLERANCE, 3 * max(apart))
    problems = [
        word for word, each in (("losses differ", losses), ("weights differ", weights)) if not each <= tolerance
    ]
    return Comparison(_figures(ranks), losses, weights, problems)


def _quiet(data: Path) -> dict[str, str]:
    return {
        **{"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(data / "cache")},
        **{"TOKENIZERS_PARALLELISM": "false", "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"},
    }


def _start(command: list[str], script: Path, data: Path, name: str, told: dict[str, str], parts: int = 1) -> Told:
    out = data / f"out-{script.parent.name}-{name}"
    words = {
        **{"model_name_or_path": data / "model", "train_file": data / "train.csv", "output_dir": out},
        **{"validation_file": data / "validation.csv", "max_seq_length": 64, "max_steps": STEPS, "logging_steps": 1},
        **{"per_device_train_batch_size": BATCH // parts, "gradient_accumulation_steps": parts, "max_grad_norm": 0},
        **{"per_device_eval_batch_size": BATCH, "learning_rate": 1e-3, "save_strategy": "no", "disable_tqdm": True},
    }
    arguments = [word for name, value in words.items() for word in (f"--{name}", str(value))]
    arguments += ["--do_train", "--do_eval", *([] if told else ["--no_cuda"])]
    command = [*command, str(direct.DOUBLES / "trainer_start.py"), str(script), *arguments]
    environment = {**os.environ, **_quiet(data), **told}
    ended = subprocess.run(
        command, cwd=data, env=environment, capture_output=True, text=True, timeout=direct.TIME_LIMIT
    )
    return Told(out, ended.returncode, ended.stdout + ended.stderr)


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
