"""The estimator of SageMaker's Python SDK v2 for train.py: in local mode on this machine, or on AWS.

Usage: python launch_v2.py [--image IMAGE] [--role ROLE --instance-type ml.p4d.24xlarge --instance-count 2]
"""

import argparse
from pathlib import Path
from typing import Any

import boto3
from sagemaker.local import LocalSession
from sagemaker.pytorch import PyTorch

HERE = Path(__file__).resolve().parent
PARAMETERS = {"partitions": 2, "microbatches": 4, "pipeline": "interleaved", "ddp": True}


def local_settings() -> dict[str, Any]:
    """Settings of local mode, so that nothing is uploaded to S3. The model is written into the folder `output`."""
    session = LocalSession(boto3.Session(region_name="us-east-1"))
    session.config = {"local": {"local_code": True}}
    return {"sagemaker_session": session, "output_path": f"file://{Path('output').resolve()}"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--image", default="berth-train:cpu", help="on AWS the image_uri in ECR")
    parser.add_argument("--role", default="arn:aws:iam::111122223333:role/any", help="local mode accepts any role")
    parser.add_argument("--instance-type", default="local")
    parser.add_argument("--instance-count", type=int, default=1)
    arguments = parser.parse_args()
    local = arguments.instance_type.startswith("local")
    # On a host with GPUs the image starts one rank per GPU. Each further group of two ranks is a replica.
    mpi = {"enabled": True, **({"processes_per_host": 2} if local else {})}
    estimator = PyTorch(
        entry_point="train.py",
        source_dir=str(HERE),
        image_uri=arguments.image,
        role=arguments.role,
        instance_type=arguments.instance_type,
        instance_count=arguments.instance_count,
        framework_version="2.1",  # the SDK chooses paths by it; the image's own version differs
        py_version="py310",
        distribution={"mpi": mpi, "smdistributed": {"modelparallel": {"enabled": True, "parameters": PARAMETERS}}},
        hyperparameters={"epochs": 6, "batch_size": 32},
        **(local_settings() if local else {}),
    )
    estimator.fit()


if __name__ == "__main__":
    main()
