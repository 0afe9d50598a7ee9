"""The launchers of examples/ with the real SDKs, v2 and v3: what they request from AWS."""

import json
from pathlib import Path
from typing import Any

import pytest

from berth.contract.launch_options import read_launch_options
from tests.local_mode.aws_double import ROLE
from tests.local_mode.conftest import requests_of
from tests.local_mode.example_jobs import IMAGES, QUESTIONS, TEXT, launcher

URI = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/berth:1"
ON_AWS = ["--image", URI, "--role", ROLE, "--instance-type", "ml.p4d.24xlarge", "--instance-count", "2"]
PIPELINE = {"partitions": 2, "microbatches": 4, "ddp": True}
# The options of a public notebook.
NOTEBOOK = {
    "microbatches": 4,
    "placement_strategy": "cluster",
    "pipeline": "interleaved",
    "partitions": 4,
    "pipeline_parallel_degree": 2,
    "tensor_parallel_degree": 2,
    "optimize": "speed",
    "ddp": True,
}
# Folder, arguments and script of each job, and the options of the model parallel library, or none.
SMDISTRIBUTED: list[tuple[str, list[str], str, dict[str, Any]]] = [
    (QUESTIONS, [], "train.py", {}),
    (TEXT, [], "train.py", {**PIPELINE, "pipeline": "interleaved"}),
    (IMAGES, ["--parallel", "data"], "train.py", {}),
    (IMAGES, ["--parallel", "model"], "train_smp.py", {**PIPELINE, "placement_strategy": "spread"}),
    (IMAGES, ["--parallel", "tensor"], "train_smp.py", NOTEBOOK),
]


@pytest.mark.parametrize("version", [pytest.param(2, marks=pytest.mark.nightly), 3])
def test_requests_of_the_smdistributed_launchers(version: int, tmp_path: Path) -> None:
    commands = [[launcher(folder, version), *ON_AWS, *arguments] for folder, arguments, *_ in SMDISTRIBUTED]
    requests = requests_of(commands, version=version, work=tmp_path)
    for made, (_, _, script, parameters) in zip(requests, SMDISTRIBUTED, strict=True):
        job = made["CreateTrainingJob"]
        assert job["AlgorithmSpecification"]["TrainingImage"] == URI
        assert job["ResourceConfig"].items() >= {"InstanceType": "ml.p4d.24xlarge", "InstanceCount": 2}.items()
        assert job["HyperParameters"]["epochs"] in ("4", "6")
        options = read_launch_options(job["HyperParameters"], script, job.get("Environment", {}))
        assert not options.problems
        assert options.model_parallel == parameters
        assert options.smddp == (not parameters and version == 2), "SDK v3 has no setting for smddp"
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
def test_requests_of_the_other_launchers(version: int, tmp_path: Path) -> None:
    commands = [[launcher(folder, version), *ON_AWS, *arguments] for folder, arguments, *_ in OTHERS]
    requests = requests_of(commands, version=version, work=tmp_path)
    for made, (folder, _, program, channels) in zip(requests, OTHERS, strict=True):
        job = made["CreateTrainingJob"]
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


def test_request_of_the_batch_transform_example(tmp_path: Path) -> None:
    places = ["--model", "s3://BUCKET/model.tar.gz", "--input", "s3://BUCKET/in", "--output", "s3://BUCKET/out"]
    words = ["--image", URI, "--role", ROLE, "--instance-type", "ml.c6i.xlarge"]
    (made,) = requests_of([[launcher("batch_transform", 2), *places, *words]], version=2, work=tmp_path)
    job = made["CreateTransformJob"]
    assert job["TransformInput"]["DataSource"]["S3DataSource"]["S3Uri"] == "s3://BUCKET/in"
    assert job["TransformInput"].items() >= {"SplitType": "Line", "ContentType": "application/jsonlines"}.items()
    assert job["TransformOutput"].items() >= {"S3OutputPath": "s3://BUCKET/out", "AssembleWith": "Line"}.items()
    assert job["BatchStrategy"] == "MultiRecord"
