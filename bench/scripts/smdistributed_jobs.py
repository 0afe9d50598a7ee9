"""A run of a script as a job of the training image, started as its estimator asks, and the same in one process there.

The source folder of either is the script, what it reads beside it, and doubles/ (bench/doubles): its start.py runs the
script and keeps what it did in the job's folder of checkpoints, which is a folder of this machine.
"""

import gzip
import hashlib
import json
import random
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.scripts import common
from bench.scripts.smdistributed_table import Run, Script
from berth.common.errors import UserError
from berth.images import pins
from berth.local.job import TrainingJob

VARIABLE = "BERTH_SMDISTRIBUTED_SCRIPTS"
HOLDS = "a folder with the published scripts as SOURCE@COMMIT/path (bench/scripts/smdistributed_table.py)"
DOUBLES = pins.ROOT / "bench/doubles"
IMAGE = f"berth-train:{pins.DEFAULT_PROFILE}"
TIME_LIMIT = 1200.0
REVERSED = "reversed"
RECORD = "/opt/ml/checkpoints"
CODE = "/opt/ml/code"
# What of the kit the image has.
_KIT = ("contract", "qa", "runtime", "train")


@dataclass(frozen=True)
class Told:
    """Where a job's ranks kept what they did, how it ended, and what it said: its failure's first line, and its log."""

    folder: Path
    exit_code: int
    reason: str
    output: str
    seconds: float


@dataclass(frozen=True)
class Bench:
    """What all runs share: where the scripts lie, a folder for what they write, the channels of their jobs, the images'
    ids by name, which a build in the meantime does not change, and whether this checkout's kit is laid over theirs.
    """

    scripts: Path
    scratch: Path
    channels: Mapping[str, Path]
    images: Mapping[str, str] = field(default_factory=dict)
    own_kit: bool = False

    @property
    def kit(self) -> dict[str, str]:
        """The environment in which Python finds what lies in the source folder first."""
        return {"PYTHONPATH": CODE} if self.own_kit else {}


def blob(text: bytes) -> str:
    """git's name of a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest()


def make_channels(folder: Path) -> dict[str, Path]:
    """train, val and test, each with tokens as train_gpt_simple.py reads them; other scripts' data sets are doubles."""
    channels = {}
    for seed, name in enumerate(("train", "val", "test")):
        chance = random.Random(seed)
        channels[name] = folder / name
        channels[name].mkdir(parents=True)
        with gzip.open(channels[name] / "tokens.json.gz", "wt", encoding="utf-8") as file:
            for _ in range(64):
                first = chance.randrange(100)
                tokens = [(first + 3 * place) % 100 for place in range(32)]
                file.write(json.dumps({"input_ids": tokens, "attention_mask": [1] * 32}) + "\n")
    return channels


def write_script(script: Script, bench: Bench, code: Path) -> int:
    """Lays the script, edited, and what stands beside it into `code`; how many places were edited.

    UserError where the scripts' folder lacks it, or has another text than the one that the table was written for.
    """
    source = bench.scripts / script.source / script.path
    text = common.read_script(source, VARIABLE, HOLDS)
    if not blob(source.read_bytes()).startswith(script.blob):
        raise UserError(f"{source} is not the text of {script.repository} at {script.commit}: fetch it again.")
    places = sum(text.count(old) for old, _ in script.edits)
    for old, new in script.edits:
        text = text.replace(old, new)
    # transformers, too, would find a torchvision that is there, and need more of it than the double has.
    unasked = [each.name for each in (DOUBLES / "packages").iterdir() if each.stem not in text]
    shutil.copytree(DOUBLES, code / "doubles", ignore=shutil.ignore_patterns("__pycache__", *unasked))
    (code / script.name).write_text(text, "utf-8")
    for name in script.beside:
        (code / name).write_text(common.read_script(source.parent / name, VARIABLE, HOLDS), "utf-8")
    if bench.own_kit:
        for name in _KIT:
            shutil.copytree(pins.ROOT / name, code / "berth" / name, ignore=shutil.ignore_patterns("__pycache__"))
    return places


def asked(run: Run) -> dict[str, str]:
    """The hyperparameters that SDK v2's estimator sends for the run's distribution."""
    if run.parameters is None:
        return {"sagemaker_distributed_dataparallel_enabled": "true", "sagemaker_instance_type": '"ml.p3.16xlarge"'}
    return {
        "mp_parameters": json.dumps(run.parameters),
        "sagemaker_mpi_enabled": "true",
        "sagemaker_mpi_num_of_processes_per_host": str(run.ranks),
    }


def run_ranks(run: Run, code: Path, bench: Bench) -> Told:
    """The job; without GPUs a host has one rank, unless it is told how many."""
    ranks = {"BERTH_PROCESSES_PER_HOST": str(run.ranks)} if run.parameters is None else {}
    return _started(run, code, bench, "ranks", asked(run), ranks)


def run_one(run: Run, code: Path, bench: Bench, order: str = "") -> Told:
    """All of the run's replicas in one process, in plain torch.

    order: none for the job's own, a number for as many microbatches, `reversed` for the last replica's gradient first.
    """
    microbatches = order if order.isdecimal() else str((run.parameters or {}).get("microbatches", 1))
    told = {"BERTH_DISTRIBUTION": "none", "REFERENCE_REPLICAS": str(run.replicas)}
    told |= {"REFERENCE_MICROBATCHES": microbatches, "REFERENCE_REVERSED": "1" if order == REVERSED else ""}
    without = {name: value for name, value in asked(run).items() if name != "mp_parameters"}
    return _started(run, code, bench, f"one{order}", without, told)


def _started(
    run: Run, code: Path, bench: Bench, name: str, distribution: Mapping[str, str], environment: Mapping[str, str]
) -> Told:
    record = code.parent / name
    record.mkdir()
    start = {"RECORDED_SCRIPT": run.script.name, "RECORD_FOLDER": RECORD, "OMP_NUM_THREADS": "1"}
    job = TrainingJob(
        bench.channels,
        output=code.parent / f"output of {name}",
        hyperparameters={"sagemaker_program": "doubles/start.py", **run.arguments, **distribution},
        environment={**start, **bench.kit, **environment},
        code=code,
        checkpoints=record,
        timeout=TIME_LIMIT,
    )
    ended = common.run_job(job, bench.images[IMAGE])
    return Told(record, ended.exit_code, ended.reason, "\n".join(ended.lines), ended.seconds)
