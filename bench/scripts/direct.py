"""A run of a script as processes of this machine, by torchrun, and the same in one process; no image is needed."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.scripts import common
from bench.scripts.smdistributed_table import Run, Script
from berth.common.errors import UserError
from berth.images import pins

VARIABLE = "BERTH_SMDISTRIBUTED_SCRIPTS"
HOLDS = "a folder with the published scripts as SOURCE@COMMIT/path (bench/scripts/smdistributed_table.py)"
DOUBLES = pins.ROOT / "bench/doubles"
TIME_LIMIT = 600.0
REVERSED = "reversed"
# A place of SageMaker's that a test may not write to.
CHECKPOINTS = "/opt/ml/local_checkpoints"


@dataclass(frozen=True)
class Told:
    """Where a run's ranks kept what they did, how they ended, and what they said."""

    folder: Path
    exit_code: int
    output: str


def blob(text: bytes) -> str:
    """git's name of a file's content."""
    return hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest()


def write_script(script: Script, folder: Path, code: Path) -> int:
    """Lays the script, edited, and the files beside it into `code`; how many places were edited.

    UserError where the folder lacks it, or has another text than the one that the table was written for.
    """
    source = folder / script.source / script.path
    text = common.read_script(source, VARIABLE, HOLDS)
    if not blob(source.read_bytes()).startswith(script.blob):
        raise UserError(f"{source} is not the text of {script.repository} at {script.commit}: fetch it again.")
    places = sum(text.count(old) for old, _ in script.edits)
    for old, new in script.edits:
        text = text.replace(old, new)
    code.mkdir(parents=True)
    (code / script.name).write_text(text, "utf-8")
    for name in script.beside:
        (code / name).write_text(common.read_script(source.parent / name, VARIABLE, HOLDS), "utf-8")
    return places


def environment(run: Run, scratch: Path, record: Path) -> dict[str, str]:
    """What SageMaker's training toolkit sets for a script, as far as these read it."""
    enabled = "sagemaker_distributed_dataparallel_enabled" if run.parameters is None else "sagemaker_mpi_enabled"
    told = {
        **{"OMP_NUM_THREADS": "1", "BERTH_BENCH_RECORD": str(record), "PYTHONDONTWRITEBYTECODE": "1"},
        **{"SM_MODEL_DIR": str(record), "SM_OUTPUT_DATA_DIR": str(record), "SM_CURRENT_HOST": "algo-1"},
        **{"SM_CHANNEL_TRAIN": str(scratch), "SM_CHANNEL_VAL": str(scratch), "SM_MODULE_DIR": "s3://bucket/job/source"},
        "SM_FRAMEWORK_PARAMS": json.dumps({enabled: True}),
        **run.environment,
    }
    if run.parameters is not None:
        told["SM_HP_MP_PARAMETERS"] = json.dumps(run.parameters)
    return told


def run_ranks(run: Run, code: Path, scratch: Path, library: Path) -> Told:
    """As many processes as the run has ranks, with `library` as the folder of the package smdistributed."""
    record = scratch / "ranks"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(run.ranks)]
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, [str(library), os.environ.get("PYTHONPATH", "")]))}
    return _start(command, run, code, record, environment(run, scratch, record) | paths)


def run_one(run: Run, code: Path, scratch: Path, order: str = "") -> Told:
    """All of the run's replicas in one process, in plain torch.

    order: none for the job's own, a number for as many microbatches, `reversed` for the last replica's gradient first.
    """
    record = scratch / f"one{order}"
    told = environment(run, scratch, record) | {"BERTH_BENCH_REPLICAS": str(run.replicas)}
    if order:
        told |= {"BERTH_BENCH_REVERSED": "1"} if order == REVERSED else {"BERTH_BENCH_MICROBATCHES": order}
    return _start([sys.executable], run, code, record, told)


def _start(command: Sequence[str], run: Run, code: Path, record: Path, told: Mapping[str, str]) -> Told:
    record.mkdir()
    path = code / run.script.name
    text = path.read_text("utf-8").replace(CHECKPOINTS, str(record / "checkpoints"))
    (code / f"in_{record.name}_{run.script.name}").write_text(text, "utf-8")
    words = [*command, str(DOUBLES / "start.py"), f"in_{record.name}_{run.script.name}", *run.arguments]
    try:
        ended = subprocess.run(
            words, cwd=code, env={**os.environ, **told}, capture_output=True, text=True, timeout=TIME_LIMIT
        )
    except subprocess.TimeoutExpired as late:
        output = b"".join(each for each in (late.stdout, late.stderr) if isinstance(each, bytes)).decode(
            errors="replace"
        )
        return Told(record, 124, f"{output}\nstill running after {TIME_LIMIT:.0f} s")
    return Told(record, ended.returncode, ended.stdout + ended.stderr)
