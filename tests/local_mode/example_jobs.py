"""The jobs of the examples of smdistributed in local mode."""

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import docker
import pytest
import transformers

from berth.images.pins import pins
from tests.local_mode import sdk
from tests.local_mode.conftest import remove_what_the_sdk_left
from tests.local_mode.test_sdk_v2 import TRAIN

RUN = Path(__file__).with_name("run_example.py")
QUESTIONS, TEXT, IMAGES = "question_answering_smddp", "text_classification_model_parallel", "image_classification_vit"
# The folder, arguments and last line of each job.
JOBS: dict[str, tuple[str, list[str], str]] = {
    "questions": (QUESTIONS, [], "exact match: 100 of 100"),
    "texts": (TEXT, [], "right labels: 100 of 100"),
    "images-data": (IMAGES, ["--parallel", "data"], "right classes: 47 of 48"),
    "images-model": (IMAGES, ["--parallel", "model"], "right classes: 47 of 48"),
}


def names(every_time: str) -> list[Any]:
    """The jobs as parameters of a test: one in every run, the others at night."""
    return [pytest.param(name, marks=[] if name == every_time else pytest.mark.nightly) for name in JOBS]


def launcher(folder: str, version: int) -> str:
    return str(pins.ROOT / "examples" / folder / f"launch_v{version}.py")


def unpacked(folder: Path) -> Path:
    """The files of a job's model.tar.gz, whose place depends on the SDK; empty without an archive."""
    for archive in folder.glob("*/model.tar.gz"):
        with tarfile.open(archive) as tar:
            tar.extractall(folder / "unpacked")
    return folder / "unpacked"


def assert_job_learns_on_two_ranks(name: str, version: int, client: docker.DockerClient, work: Path) -> None:
    """Run a job in a process of its own, because SDK v3 writes to the folder of its import, and check log and model."""
    folder, arguments, last = JOBS[name]
    request = {"work": str(work), "command": [launcher(folder, version), "--image", TRAIN, *arguments]}
    try:
        error, log = sdk.run(RUN, json.dumps(request), version=version, work=work)
    finally:
        remove_what_the_sdk_left(client, work)
    assert not error, log
    losses = [float(text) for text in re.findall(r"epoch \d+: loss ([\d.]+)", log)]
    assert losses[-1] < 0.1 < losses[0], log
    assert last in log
    library = "smddp" if folder == QUESTIONS or "data" in arguments else "smp"
    assert re.search(rf"{library}: open implementation, not AWS's library: 2 (ranks|partitions × 1 replicas)", log)
    saved = unpacked(work)
    (kind,) = transformers.AutoConfig.from_pretrained(saved).architectures
    model, loading = getattr(transformers, kind).from_pretrained(saved, output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert model.num_parameters() > 100_000
