"""SDK v3 in local mode: a ModelTrainer with and without source code, Torchrun(), MPI(), two hosts; an endpoint."""

import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.doubles.package_index import wheel
from tests.local_mode import sdk
from tests.local_mode.conftest import remove_what_the_sdk_left
from tests.local_mode.test_sdk_v2 import RECIPE, SERVE, TRAIN

PROGRAM, SCRIPT = (Path(__file__).with_name(name) for name in ("model_trainer.py", "joins_group.py"))
# Job of the user's script → hosts, ranks per host (0: no rank), and the library that joins the group.
JOBS = {
    "script": (1, 0, "none"),
    "Torchrun, two hosts": (2, 1, "torch"),
    "MPI, two hosts": (2, 2, "accelerate"),
}
HYPERPARAMETERS = {
    "text": 'two words, $HOME and "double" quotes',
    "settings": {"a": [1, 2]},
    "rate": 3e-5,
    "flag": True,
}
QUESTION = {"question": "What is used for inference?", "context": "This model is used with sagemaker for inference."}


@dataclass(frozen=True)
class EndedJob:
    """An ended job: its error, log, files of model.tar.gz, and its endpoint's answers."""

    error: str
    log: str
    model: dict[str, bytes]
    answers: list[Any]


@pytest.fixture(scope="module")
def jobs(
    client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory, excerpt: Any, pretrained: Path
) -> Iterator[dict[str, EndedJob]]:
    """All jobs by name. One process runs them, because importing the SDK takes seconds."""
    work = tmp_path_factory.mktemp("jobs")
    jobs = [{"name": "run_qa", **run_qa(work, excerpt, pretrained)}]
    jobs += [{"name": name, **user_job(work, *JOBS[name], launcher=name.partition(",")[0])} for name in JOBS]
    roots = {job["name"]: work / f"root-{number}" for number, job in enumerate(jobs)}
    requests = [{"image_uri": TRAIN, "root": str(roots[job["name"]]), **job} for job in jobs]
    try:
        errors, output = sdk.run(PROGRAM, json.dumps(requests), version=3, work=work)
        logs = re.split(r"^JOB (.+)$", output, flags=re.MULTILINE)
        by_name = dict(zip(logs[1::2], logs[2::2], strict=True))
        answers = work / "archive" / "answers.json"
        yield {
            name: EndedJob(
                error=errors[name],
                log=by_name[name],
                model=model_files(root),
                answers=json.loads(answers.read_text()) if name == "run_qa" and answers.exists() else [],
            )
            for name, root in roots.items()
        }
    finally:
        remove_what_the_sdk_left(client, work)


def run_qa(work: Path, excerpt: Any, pretrained: Path) -> dict[str, Any]:
    """A job without source code, and an endpoint of its model."""
    inputs = {"model": str(pretrained)}
    for channel, name, questions in (("train", "train", 16), ("validation", "heldout", 4)):
        (work / channel).mkdir()
        (work / channel / "data.json").write_text(json.dumps(excerpt(name, questions)))
        inputs[channel] = str(work / channel)
    return {
        "hyperparameters": RECIPE | {"max_steps": 2},
        "inputs": inputs,
        "serve": {"image_uri": SERVE, "folder": str(work / "archive"), "questions": [{"inputs": QUESTION}]},
    }


def user_job(work: Path, hosts: int, ranks: int, group: str, *, launcher: str) -> dict[str, Any]:
    """A job of the user's script, with all kinds of arguments of a ModelTrainer."""
    (work / "rows").mkdir(exist_ok=True)
    (work / "rows" / "rows.txt").write_text("1 2 3")
    job: dict[str, Any] = {
        "source_code": source_code(work / "source"),
        "hyperparameters": HYPERPARAMETERS | {"group": group},
        "environment": {"GREETING": "good morning"},
        "inputs": {"train": str(work / "rows")},
        "instance_count": hosts,
    }
    return job | ({"distributed": [launcher, {"process_count_per_node": ranks}]} if ranks else {})


def source_code(folder: Path) -> dict[str, str]:
    """Makes a source folder: the script, its requirements, and a wheel."""
    folder.mkdir(exist_ok=True)
    shutil.copy(SCRIPT, folder)
    name = "berth_sample-1.0-py3-none-any.whl"
    (folder / name).write_bytes(wheel("berth_sample", "VALUE = 'from the wheel'\n"))
    (folder / "requirements.txt").write_text(f"./{name}\n")
    return {"source_dir": str(folder), "entry_script": SCRIPT.name, "requirements": "requirements.txt"}


def model_files(root: Path) -> dict[str, bytes]:
    archive = root / "compressed_artifacts" / "model.tar.gz"
    if not archive.exists():
        return {}
    with tarfile.open(archive) as tar:
        opened = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
        return {name: file.read() for name, file in opened.items() if file}


@pytest.mark.parametrize("name", JOBS)
def test_script_gets_its_settings_and_forms_one_group(name: str, jobs: dict[str, EndedJob]) -> None:
    """Rank 0 writes its settings. The sum must come from distinct ranks; each rank may use every core, and the network
    interface must exist.
    """
    hosts, ranks, group = JOBS[name]
    assert not jobs[name].error, jobs[name].log
    local_ranks = [str(rank) for rank in range(ranks)] or [None]
    interface = "eth0" if ranks else None
    assert json.loads(jobs[name].model["group.json"]) == {
        "text": HYPERPARAMETERS["text"],
        "settings": '{"a": [1, 2]}',
        "rate": "3e-05",
        "flag": "true",
        "group": group,
        "environment": "good morning",
        "package": "from the wheel",
        "rows": "1 2 3",
        "sum": int("1" * (hosts * ranks or 1)),
        "ranks": [
            [f"algo-{host + 1}", local, len(os.sched_getaffinity(0)), interface, interface]
            for host in range(hosts)
            for local in local_ranks
        ],
    }


def test_log_has_one_line_about_changes_for_mpi(jobs: dict[str, EndedJob]) -> None:
    lines = {name: len(re.findall("berth: mpirun: changed for SDK v3's driver: ", jobs[name].log)) for name in JOBS}
    assert lines == {name: int(name.startswith("MPI")) for name in JOBS}


def test_run_qa_trains_without_source_code_and_its_endpoint_answers(jobs: dict[str, EndedJob]) -> None:
    job = jobs["run_qa"]
    assert not job.error, job.log
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= job.model.keys()
    assert json.loads(job.model["metrics.json"])["world_size"] == 1
    (answer,) = job.answers
    assert answer["answer"] == QUESTION["context"][answer["start"] : answer["end"]]
