"""The launchers of examples/ with the real SDKs, v2 and v3: their requests to AWS, and their jobs in local mode."""

import json
import re
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest
import transformers

from berth.contract.launch_options import read_launch_options
from berth.images.pins import pins
from tests.local_mode import sdk
from tests.local_mode.aws_double import ROLE
from tests.local_mode.conftest import remove_what_the_sdk_left
from tests.local_mode.test_sdk_v2 import TRAIN

EXAMPLES = pins.ROOT / "examples"
REQUESTS, RUN = (Path(__file__).with_name(name) for name in ("example_requests.py", "run_example.py"))
URI = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/berth:1"
ON_AWS = ["--image", URI, "--role", ROLE, "--instance-type", "ml.p4d.24xlarge", "--instance-count", "2"]
QUESTIONS, TEXT, IMAGES = "question_answering_smddp", "text_classification_model_parallel", "image_classification_vit"
# Folder, arguments and script of each job; whether it uses the data parallel library, otherwise model parallel.
SMDISTRIBUTED = [
    (QUESTIONS, [], "train.py", True),
    (TEXT, [], "train.py", False),
    (IMAGES, ["--parallel", "data"], "train.py", True),
    (IMAGES, ["--parallel", "model"], "train_smp.py", False),
]
# The SDK, folder, arguments and last line of each job.
JOBS = {
    f"{name}-v{version}": (version, folder, arguments, last)
    for name, folder, arguments, last in (
        ("questions", QUESTIONS, [], "exact match: 100 of 100"),
        ("texts", TEXT, [], "right labels: 100 of 100"),
        ("images-data", IMAGES, ["--parallel", "data"], "right classes: 47 of 48"),
        ("images-model", IMAGES, ["--parallel", "model"], "right classes: 47 of 48"),
    )
    for version in (2, 3)
}
EVERY_TIME = ("texts-v2", "questions-v3")
"""One job per SDK and library; the others run every night."""


def launcher(folder: str, version: int) -> str:
    return str(EXAMPLES / folder / f"launch_v{version}.py")


@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.nightly), 3])
def test_requests_of_the_smdistributed_launchers(version: int, run_sdk: Any) -> None:
    commands = [[launcher(folder, version), *ON_AWS, *arguments] for folder, arguments, *_ in SMDISTRIBUTED]
    requests, _ = run_sdk(REQUESTS, json.dumps(commands), version=version)
    for job, (_, _, script, data_parallel) in zip(requests, SMDISTRIBUTED, strict=True):
        assert job["AlgorithmSpecification"]["TrainingImage"] == URI
        assert job["ResourceConfig"].items() >= {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2}.items()
        assert job["HyperParameters"]["epochs"] in ("4", "6")
        options = read_launch_options(job["HyperParameters"], script, job.get("Environment", {}))
        assert not options.problems
        assert options.model_parallel.get("partitions") == (None if data_parallel else 2)
        assert options.smddp == (data_parallel and version == 2), "SDK v3 has no setting for smddp"
        if version == 2:
            assert json.loads(job["HyperParameters"]["sagemaker_program"]) == script


# Folder, arguments, and the request's program (none for run_qa) and channels.
OTHERS: list[tuple[str, list[str], str, list[str]]] = [
    ("text_classification", ["--model", "s3://BUCKET/model"], "train.py", ["model"]),
    ("lora", ["--model", "s3://BUCKET/model"], "train.py", ["model"]),
    ("distributed_data_parallel", [], "train.py", []),
    ("spot", ["--checkpoints", "s3://BUCKET/kept"], "train.py", []),
    (
        "question_answering",
        ["--train", "s3://BUCKET/train", "--model", "s3://BUCKET/model"],
        "",
        ["model", "train"],
    ),
]


@pytest.mark.parametrize("version", [2, 3])
def test_requests_of_the_other_launchers(version: int, run_sdk: Any) -> None:
    commands = [[launcher(folder, version), *ON_AWS, *arguments] for folder, arguments, *_ in OTHERS]
    requests, _ = run_sdk(REQUESTS, json.dumps(commands), version=version)
    for job, (folder, _, program, channels) in zip(requests, OTHERS, strict=True):
        assert job["AlgorithmSpecification"]["TrainingImage"] == URI
        assert job["ResourceConfig"].items() >= {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2}.items()
        added = {"code", "sm_drivers"}  # by SDK v3, for source code
        assert sorted({each["ChannelName"] for each in job.get("InputDataConfig", [])} - added) == channels
        if version == 2:
            assert json.loads(job["HyperParameters"].get("sagemaker_program", '""')) == program
        else:
            assert ("ContainerEntrypoint" in job["AlgorithmSpecification"]) == bool(program)
        if folder == "spot":
            assert job["EnableManagedSpotTraining"]
            assert job["CheckpointConfig"]["S3Uri"] == "s3://BUCKET/kept"


def test_request_of_the_batch_transform_example(run_sdk: Any) -> None:
    places = ["--model", "s3://BUCKET/model.tar.gz", "--input", "s3://BUCKET/in", "--output", "s3://BUCKET/out"]
    words = ["--image", URI, "--role", ROLE, "--instance-type", "ml.c6i.xlarge"]
    (job,), _ = run_sdk(REQUESTS, json.dumps([[launcher("batch_transform", 2), *places, *words]]), version=2)
    assert job["TransformInput"]["DataSource"]["S3DataSource"]["S3Uri"] == "s3://BUCKET/in"
    assert job["TransformInput"].items() >= {"SplitType": "Line", "ContentType": "application/jsonlines"}.items()
    assert job["TransformOutput"].items() >= {"S3OutputPath": "s3://BUCKET/out", "AssembleWith": "Line"}.items()
    assert job["BatchStrategy"] == "MultiRecord"


@dataclass(frozen=True)
class EndedJob:
    """An ended job: its error, its log, and the folder with its unpacked model."""

    error: str
    log: str
    model: Path


@pytest.fixture
def run_job(client: docker.DockerClient, tmp_path: Path) -> Callable[[str], EndedJob]:
    """`run_job(name)`: runs a job in its own process, because SDK v3 writes to the folder of its import."""

    def run(name: str) -> EndedJob:
        version, folder, arguments, _ = JOBS[name]
        command = [launcher(folder, version), "--image", TRAIN, *arguments]
        try:
            error, log = sdk.run(
                RUN, json.dumps({"work": str(tmp_path), "command": command}), version=version, work=tmp_path
            )
        finally:
            remove_what_the_sdk_left(client, tmp_path)
        return EndedJob(error, log, unpacked(tmp_path))

    return run


def unpacked(folder: Path) -> Path:
    """The files of a job's model.tar.gz, whose place depends on the SDK; empty without an archive."""
    for archive in folder.glob("*/model.tar.gz"):
        with tarfile.open(archive) as tar:
            tar.extractall(folder / "unpacked")
    return folder / "unpacked"


@pytest.mark.parametrize(
    "name", [*EVERY_TIME, *(pytest.param(name, marks=pytest.mark.nightly) for name in sorted(JOBS.keys() - EVERY_TIME))]
)
def test_example_learns_on_two_ranks_in_local_mode(name: str, run_job: Callable[[str], EndedJob]) -> None:
    _, folder, arguments, last = JOBS[name]
    job = run_job(name)
    assert not job.error, job.log
    losses = [float(text) for text in re.findall(r"epoch \d+: loss ([\d.]+)", job.log)]
    assert losses[-1] < 0.1 < losses[0], job.log
    assert last in job.log
    library = "smddp" if folder == QUESTIONS or "data" in arguments else "smp"
    assert re.search(rf"{library}: open implementation, not AWS's library: 2 (ranks|partitions × 1 replicas)", job.log)
    config = transformers.AutoConfig.from_pretrained(job.model)
    (kind,) = config.architectures
    model, loading = getattr(transformers, kind).from_pretrained(job.model, output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert model.num_parameters() > 100_000
