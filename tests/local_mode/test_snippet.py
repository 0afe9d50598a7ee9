"""The snippet that a push prints, run with the real SDKs v2 and v3: valid requests to AWS with the image's digest."""

from typing import Any

import pytest

from berth.ecr.snippet import V2, V3, estimator_snippet

URI = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/berth@sha256:" + "0" * 64


@pytest.fixture(params=[V2, V3], ids=["v2", "v3"])
def pasted(request: pytest.FixtureRequest, paste: Any) -> Any:
    """`pasted(image, profile)`: the snippet's requests to SageMaker with one of the SDKs."""

    def run(image: str, profile: str = "cpu") -> dict[str, Any]:
        halves = dict(zip((V3, V2), estimator_snippet(image, profile, URI).split(V2), strict=True))
        requests: dict[str, Any] = paste(halves[request.param], version=3 if request.param == V3 else 2)
        return requests

    return run


def test_pasted_estimator_requests_a_training_job(pasted: Any) -> None:
    job = pasted("train")["CreateTrainingJob"]
    assert job["AlgorithmSpecification"]["TrainingImage"] == URI
    sources = {each["ChannelName"]: each["DataSource"]["S3DataSource"]["S3Uri"] for each in job["InputDataConfig"]}
    assert sources == {"train": "s3://BUCKET/train", "model": "s3://BUCKET/model"}
    assert job["ResourceConfig"]["InstanceCount"] == 2


def test_pasted_model_requests_an_endpoint(pasted: Any) -> None:
    requests = pasted("serve")
    assert requests["CreateModel"]["PrimaryContainer"]["Image"] == URI
    assert requests["CreateModel"]["PrimaryContainer"]["ModelDataUrl"] == "s3://BUCKET/model.tar.gz"
    (variant,) = requests["CreateEndpointConfig"]["ProductionVariants"]
    assert variant["ModelName"] == requests["CreateModel"]["ModelName"]
    assert requests["CreateEndpoint"]["EndpointName"] == "berth"
    assert "InferenceAmiVersion" not in variant


def test_pasted_gpu_endpoint_requests_an_ami_with_a_new_enough_driver(pasted: Any) -> None:
    (variant,) = pasted("serve", "cu130")["CreateEndpointConfig"]["ProductionVariants"]
    assert variant["InferenceAmiVersion"] == "al2023-ami-sagemaker-inference-gpu-4-1"
