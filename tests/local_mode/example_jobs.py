"""The jobs of the examples of smdistributed in local mode."""

import functools
import json
import re
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import docker
import pytest
import transformers

from berth.images.pins import pins
from tests.local_mode import sdk
from tests.local_mode.conftest import remove_what_the_sdk_left
from tests.local_mode.test_sdk_v2 import TRAIN

RUN = Path(__file__).with_name("run_example.py")
QUESTIONS, TEXT, IMAGES = "question_answering_smddp", "text_classification_model_parallel", "image_classification_vit"
RIGHT_IMAGES = "right classes: 47 of 48"
TENSOR = ["--parallel", "tensor"]


class ExampleJob(NamedTuple):
    """A launcher's job. ranks: the library and its ranks, as the log describes them. last: the script's last line."""

    folder: str
    arguments: list[str]
    ranks: str
    last: str


JOBS = {
    "questions": ExampleJob(QUESTIONS, [], "smddp: 2 ranks", "exact match: 100 of 100"),
    "texts": ExampleJob(TEXT, [], "smp: 2 partitions × 1 replicas", "right labels: 100 of 100"),
    "images-data": ExampleJob(IMAGES, ["--parallel", "data"], "smddp: 2 ranks", RIGHT_IMAGES),
    "images-model": ExampleJob(IMAGES, ["--parallel", "model"], "smp: 2 partitions × 1 replicas", RIGHT_IMAGES),
    "images-tensor": ExampleJob(
        IMAGES, TENSOR, "smp: 2 partitions × 2 tensor parallel ranks × 1 replicas", RIGHT_IMAGES
    ),
    "images-tensor-two-hosts": ExampleJob(
        IMAGES,
        [*TENSOR, "--instance-count", "2"],
        "smp: 2 partitions × 2 tensor parallel ranks × 2 replicas",
        RIGHT_IMAGES,
    ),
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


def printed_losses(log: str) -> list[float]:
    return [float(text) for text in re.findall(r"epoch \d+: loss ([\d.]+)", log)]


@functools.cache
def losses_of_images_on_one_rank(client: docker.DockerClient) -> list[float]:
    """The losses of train.py, run in the image without a launcher."""
    code = {str(pins.ROOT / "examples" / IMAGES): {"bind": "/code", "mode": "ro"}}
    variables = {"SM_MODEL_DIR": "/tmp/model", "OMP_NUM_THREADS": "1"}
    how = {"environment": variables, "volumes": code, "network_mode": "none", "remove": True}
    return printed_losses(client.containers.run(TRAIN, ["python3", "/code/train.py"], **how).decode())


def assert_job_learns(name: str, version: int, client: docker.DockerClient, work: Path) -> None:
    """Run a job in a process of its own, because SDK v3 writes to the folder of its import, and check log and model."""
    job = JOBS[name]
    request = {"work": str(work), "command": [launcher(job.folder, version), "--image", TRAIN, *job.arguments]}
    try:
        error, log = sdk.run(RUN, json.dumps(request), version=version, work=work)
    finally:
        remove_what_the_sdk_left(client, work)
    assert not error, log
    losses = printed_losses(log)
    assert losses[-1] < 0.1 < losses[0], log
    if job.folder == IMAGES:
        assert losses == pytest.approx(losses_of_images_on_one_rank(client), abs=1e-5)
    assert job.last in log
    assert job.ranks.replace(":", ": open implementation, not AWS's library:") in log
    saved = unpacked(work)
    (kind,) = transformers.AutoConfig.from_pretrained(saved).architectures
    model, loading = getattr(transformers, kind).from_pretrained(saved, output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert model.num_parameters() > 100_000
