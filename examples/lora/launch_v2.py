"""Train with LoRA with the Estimator of SageMaker's Python SDK v2: in local mode, or on AWS.

Usage: python launch_v2.py --model FOLDER|S3_URI --image IMAGE [--role ROLE --instance-type ml.g5.xlarge]
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="a pretrained model: a folder here, on AWS its S3 URI")
    parser.add_argument("--image", default="berth-train:mine", help="an image with peft")
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
        base_job_name="lora",
        hyperparameters={"epochs": 6},
        **(local_settings() if local else {}),
    )
    estimator.fit({"model": f"file://{Path(arguments.model).resolve()}" if local else arguments.model})


if __name__ == "__main__":
    main()
