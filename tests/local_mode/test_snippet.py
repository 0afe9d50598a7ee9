"""The snippet that a push prints, run with the real SDKs v2 and v3: valid requests to AWS with the image's digest."""

from typing import Any

import pytest

from berth.ecr.snippet import V2, V3, estimator_snippet
from tests.local_mode.aws_double import ROLE
from tests.local_mode.conftest import requests_of

URI = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/berth@sha256:" + "0" * 64
SNIPPETS = (("train", "cpu"), ("serve", "cpu"), ("serve", "cu130"))


Requests = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(params=[V2, V3], ids=["v2", "v3"], scope="module")
def requests(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Requests:
    """With one of the SDKs, the requests of the snippets to SageMaker, by image and profile."""
    work, commands = tmp_path_factory.mktemp("snippets"), []
    for image, profile in SNIPPETS:
        halves = dict(zip((V3, V2), estimator_snippet(image, profile, URI).split(V2), strict=True))
        file = work / f"{image}-{profile}.py"
        file.write_text(f"role = {ROLE!r}\n{halves[request.param]}")
        commands.append([str(file)])
    made = requests_of(commands, version=3 if request.param == V3 else 2, work=work)
    return dict(zip(SNIPPETS, made, strict=True))


def test_pasted_estimator_requests_a_training_job(requests: Requests) -> None:
    job = requests["train", "cpu"]["CreateTrainingJob"]
    assert job["AlgorithmSpecification"]["TrainingImage"] == URI
    sources = {each["ChannelName"]: each["DataSource"]["S3DataSource"]["S3Uri"] for each in job["InputDataConfig"]}
    assert sources == {"train": "s3://BUCKET/train", "model": "s3://BUCKET/model"}
    assert job["ResourceConfig"]["InstanceCount"] == 2


def test_pasted_model_requests_an_endpoint(requests: Requests) -> None:
    made = requests["serve", "cpu"]
    assert made["CreateModel"]["PrimaryContainer"]["Image"] == URI
    assert made["CreateModel"]["PrimaryContainer"]["ModelDataUrl"] == "s3://BUCKET/model.tar.gz"
    (variant,) = made["CreateEndpointConfig"]["ProductionVariants"]
    assert variant["ModelName"] == made["CreateModel"]["ModelName"]
    assert made["CreateEndpoint"]["EndpointName"] == "berth"
    assert "InferenceAmiVersion" not in variant


def test_pasted_gpu_endpoint_requests_an_ami_with_a_new_enough_driver(requests: Requests) -> None:
    (variant,) = requests["serve", "cu130"]["CreateEndpointConfig"]["ProductionVariants"]
    assert variant["InferenceAmiVersion"] == "al2023-ami-sagemaker-inference-gpu-4-1"
