"""Train on spot instances with the Estimator of SageMaker's Python SDK v2; in local mode without spot.

Usage: python launch_v2.py [--image IMAGE] [--role ROLE --instance-type ml.g5.xlarge --checkpoints S3_URI]
"""

import argparse
from pathlib import Path
from typing import Any

import boto3
from sagemaker.estimator import Estimator
from sagemaker.local import LocalSession

HERE = Path(__file__).resolve().parent


def local_settings() -> dict[str, Any]:
    """Settings of local mode, so that nothing is uploaded to S3. The model is written into the folder `output`."""
    session = LocalSession(boto3.Session(region_name="us-east-1"))
    session.config = {"local": {"local_code": True}}
    return {"sagemaker_session": session, "output_path": f"file://{Path('output').resolve()}"}


def interruptible(checkpoints: str) -> dict[str, Any]:
    """Settings of a job that may wait for a host and be interrupted; local mode takes none of them."""
    return {
        "use_spot_instances": True,
        "max_run": 24 * 3600,
        "max_wait": 36 * 3600,
        "checkpoint_s3_uri": checkpoints,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoints", default="", help="on AWS the S3 URI where checkpoints are kept")
    parser.add_argument("--image", default="berth-train:cpu", help="on AWS the image_uri in ECR")
    parser.add_argument("--role", default="arn:aws:iam::111122223333:role/any", help="local mode accepts any role")
    parser.add_argument("--instance-type", default="local")
    parser.add_argument("--instance-count", type=int, default=1)
    arguments = parser.parse_args()
    local = arguments.instance_type.startswith("local")
    estimator = Estimator(
        image_uri=arguments.image,
        role=arguments.role,
        instance_type=arguments.instance_type,
        instance_count=arguments.instance_count,
        entry_point="train.py",
        source_dir=str(HERE),
        base_job_name="spot",
        **(local_settings() if local else interruptible(arguments.checkpoints)),
    )
    estimator.fit()


if __name__ == "__main__":
    main()
