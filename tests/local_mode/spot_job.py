"""Requests a job with checkpoints on spot instances with SDK v2: from moto's control plane, and in local mode, which
refuses both checkpoints and spot.

Usage: python spot_job.py ADDRESS (of moto's server). Prints RESULT and, as JSON, the job of DescribeTrainingJob and the
errors of local mode.
"""

import sys
from typing import Any

import boto3
from recording import BUCKET, IMAGE, JOB, only_the_result
from sagemaker.estimator import Estimator
from sagemaker.local import LocalSession
from sagemaker.session import Session

CHECKPOINTS = {"checkpoint_s3_uri": f"s3://{BUCKET}/checkpoints"}
SPOT = {"use_spot_instances": True, "max_run": 3600, "max_wait": 7200}
SETTINGS = {
    "image_uri": IMAGE,
    "role": "arn:aws:iam::111122223333:role/any",
    "instance_count": 1,
    "output_path": f"s3://{BUCKET}/models",  # else the SDK asks for a bucket
}


def describe_job(address: str) -> dict[str, Any]:
    """The job's description in SageMaker after `fit`."""
    boto_session = boto3.Session(region_name="eu-west-1")
    client = boto_session.client("sagemaker", endpoint_url=address)
    session = Session(boto_session, sagemaker_client=client, default_bucket=BUCKET)
    estimator = Estimator(
        **SETTINGS,
        **CHECKPOINTS,
        **SPOT,
        instance_type="ml.c5.xlarge",
        sagemaker_session=session,
        debugger_hook_config=False,
        disable_profiler=True,
    )
    estimator.fit({"train": f"s3://{BUCKET}/train"}, wait=False, job_name=JOB)
    job: dict[str, Any] = client.describe_training_job(TrainingJobName=JOB)
    return {name: job.get(name) for name in ("CheckpointConfig", "EnableManagedSpotTraining", "StoppingCondition")}


def refusal(arguments: dict[str, Any]) -> str:
    """The error of local mode."""
    session = LocalSession(boto3.Session(region_name="eu-west-1"), default_bucket=BUCKET)
    try:
        Estimator(**SETTINGS, **arguments, instance_type="local", sagemaker_session=session).fit()
    except ValueError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    with only_the_result() as end:
        end({"job": describe_job(sys.argv[1]), "checkpoints": refusal(CHECKPOINTS), "spot": refusal(SPOT)})
