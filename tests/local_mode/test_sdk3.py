"""SDK v3's ModelTrainer in local mode: with and without source code, Torchrun() and MPI(), on one and two hosts."""

import json
import os
import re
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.local_mode.test_sdk_v2 import TRAIN

PROGRAM = Path(__file__).with_name("model_trainer.py")
# Joins whatever group the launcher describes, and says who takes part: a sum over distinct ranks can't come of one.
TOGETHER = """
import argparse
import json
import os
import socket
from pathlib import Path

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
for name in ("text", "settings", "rate", "flag"):
    parser.add_argument(f"--{name}")
found = vars(parser.parse_args())
found["environment"] = os.environ["GREETING"]
found["rows"] = (Path(os.environ["SM_CHANNEL_TRAIN"]) / "rows.txt").read_text()
try:
    import berth_sample
    found["package"] = berth_sample.VALUE
except ImportError:
    found["package"] = None
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    total = torch.tensor([10.0**rank])
    dist.all_reduce(total)
    ranks = [None] * dist.get_world_size()
    dist.all_gather_object(
        ranks, [os.environ["SM_CURRENT_HOST"], os.environ["LOCAL_RANK"], len(os.sched_getaffinity(0))]
    )
    dist.destroy_process_group()
else:
    rank, total, ranks = 0, torch.ones(1), [[os.environ["SM_CURRENT_HOST"], "0", len(os.sched_getaffinity(0))]]
if rank == 0:
    found |= {"sum": total.item(), "ranks": ranks}
    Path(os.environ["SM_MODEL_DIR"], "together.json").write_text(json.dumps(found))
"""
HYPERPARAMETERS = {
    "text": 'two words, $HOME and "double" quotes',
    "settings": {"a": [1, 2]},
    "rate": 3e-5,
    "flag": True,
}


@dataclass(frozen=True)
class Ended:
    """A job that has ended: its error, its log, and the files of its model.tar.gz."""

    error: str
    log: str
    model: dict[str, bytes]


Train = Callable[[list[dict[str, Any]]], dict[str, Ended]]


@pytest.fixture
def train(run_sdk: Any, tmp_path: Path) -> Train:
    """Runs jobs, each with a name, in one process of the SDK."""

    def run(jobs: list[dict[str, Any]]) -> dict[str, Ended]:
        roots = {job["name"]: tmp_path / f"root-{job['name']}" for job in jobs}
        told = [{"image_uri": TRAIN, "root": str(roots[job["name"]]), **job} for job in jobs]
        errors, output = run_sdk(PROGRAM, json.dumps(told), version=3)
        logs = re.split(r"^JOB (.+)$", output, flags=re.MULTILINE)
        by_name = dict(zip(logs[1::2], logs[2::2], strict=True))
        return {name: Ended(errors[name], by_name[name], model_files(root)) for name, root in roots.items()}

    return run


def model_files(root: Path) -> dict[str, bytes]:
    archive = root / "compressed_artifacts" / "model.tar.gz"
    if not archive.exists():
        return {}
    with tarfile.open(archive) as tar:
        opened = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
        return {name: file.read() for name, file in opened.items() if file}


@pytest.fixture
def user_code(tmp_path: Path) -> dict[str, str]:
    """A source folder as v3 takes it: a script and its requirements, a wheel that lies next to them."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "together.py").write_text(TOGETHER)
    wheel = "berth_sample-1.0-py3-none-any.whl"
    info = "berth_sample-1.0.dist-info"
    with zipfile.ZipFile(folder / wheel, "w") as archive:
        archive.writestr("berth_sample.py", "VALUE = 'from the wheel'\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: berth-sample\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    (folder / "requirements.txt").write_text(f"./{wheel}\n")
    return {"source_dir": str(folder), "entry_script": "together.py", "requirements": "requirements.txt"}


@pytest.fixture
def job_of_user(user_code: dict[str, str], tmp_path: Path) -> dict[str, Any]:
    """What a ModelTrainer is given with it, but for the distribution."""
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "rows.txt").write_text("1 2 3")
    return {
        "source_code": user_code,
        "hyperparameters": HYPERPARAMETERS,
        "environment": {"GREETING": "good morning"},
        "inputs": {"train": str(tmp_path / "rows")},
    }


def check_together(ended: Ended, hosts: int, ranks_per_host: int) -> None:
    """What rank 0 found: the settings as they were given, and every rank in one group, each free to use every core."""
    assert not ended.error, ended.log
    found = json.loads(ended.model["together.json"])
    assert found.pop("sum") == int("1" * (hosts * ranks_per_host))
    places = [[f"algo-{host + 1}", str(local)] for host in range(hosts) for local in range(ranks_per_host)]
    assert found.pop("ranks") == [[*place, len(os.sched_getaffinity(0))] for place in places]
    assert found == {
        "text": HYPERPARAMETERS["text"],
        "settings": '{"a": [1, 2]}',
        "rate": "3e-05",
        "flag": "true",
        "environment": "good morning",
        "rows": "1 2 3",
        "package": "from the wheel",
    }


def test_one_host(train: Train, job_of_user: dict[str, Any]) -> None:
    alone = job_of_user | {"name": "alone"}
    mpi = job_of_user | {"name": "mpi", "distributed": ["MPI", {"process_count_per_node": 2}]}
    ended = train([alone, mpi])
    check_together(ended["alone"], 1, 1)
    check_together(ended["mpi"], 1, 2)
    assert len(re.findall("berth: mpirun: changed for SDK v3's driver: ", ended["mpi"].log)) == 1
