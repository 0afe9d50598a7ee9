"""The estimator of SageMaker's Python SDK v2 for both scripts: in local mode on this machine, or on AWS.

Usage: python launch_v2.py [--parallel model|tensor] [--image IMAGE] [--role ROLE --instance-type ml.p4d.24xlarge]
"""

import argparse
from pathlib import Path
from typing import Any

import boto3
from sagemaker.local import LocalSession
from sagemaker.pytorch import PyTorch

HERE = Path(__file__).resolve().parent
# Options of the model parallel library. `tensor` has those of a public notebook: two partitions, each split over two
# tensor parallel ranks. The notebook also sets `partitions`, to the product of both degrees.
PARAMETERS = {
    "model": {"partitions": 2, "microbatches": 4, "placement_strategy": "spread", "ddp": True},
    "tensor": {
        "microbatches": 4,
        "placement_strategy": "cluster",
        "pipeline": "interleaved",
        "partitions": 4,
        "pipeline_parallel_degree": 2,
        "tensor_parallel_degree": 2,
        "optimize": "speed",
        "ddp": True,
    },
}
# Without GPUs a host has one rank, unless you set a number.
LOCAL_RANKS = {"data": 2, "model": 2, "tensor": 4}


def data_parallel(ranks: int | None) -> dict[str, Any]:
    return {
        "entry_point": "train.py",
        "distribution": {"smdistributed": {"dataparallel": {"enabled": True}}},
        "environment": {"BERTH_PROCESSES_PER_HOST": str(ranks)} if ranks else {},
    }


def model_parallel(ranks: int | None, parameters: dict[str, Any]) -> dict[str, Any]:
    # On a host with GPUs the image starts one rank per GPU. All ranks beyond the first replica's are further replicas.
    mpi = {"enabled": True, **({"processes_per_host": ranks} if ranks else {})}
    return {
        "entry_point": "train_smp.py",
        "distribution": {"mpi": mpi, "smdistributed": {"modelparallel": {"enabled": True, "parameters": parameters}}},
    }


def local_settings() -> dict[str, Any]:
    """Settings of local mode, so that nothing is uploaded to S3. The model is written into the folder `output`."""
    session = LocalSession(boto3.Session(region_name="us-east-1"))
    session.config = {"local": {"local_code": True}}
    return {"sagemaker_session": session, "output_path": f"file://{Path('output').resolve()}"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parallel", choices=LOCAL_RANKS, default="data")
    parser.add_argument("--image", default="berth-train:cpu", help="on AWS the image_uri in ECR")
    parser.add_argument("--role", default="arn:aws:iam::111122223333:role/any", help="local mode accepts any role")
    parser.add_argument("--instance-type", default="local")
    parser.add_argument("--instance-count", type=int, default=1)
    arguments = parser.parse_args()
    local = arguments.instance_type.startswith("local")
    ranks = LOCAL_RANKS[arguments.parallel] if local else None
    parameters = PARAMETERS.get(arguments.parallel)
    estimator = PyTorch(
        source_dir=str(HERE),
        image_uri=arguments.image,
        role=arguments.role,
        instance_type=arguments.instance_type,
        instance_count=arguments.instance_count,
        framework_version="2.1",  # the SDK chooses paths by it; the image's own version differs
        py_version="py310",
        hyperparameters={"epochs": 4, "batch_size": 32},
        **(model_parallel(ranks, parameters) if parameters else data_parallel(ranks)),
        **(local_settings() if local else {}),
    )
    estimator.fit()


if __name__ == "__main__":
    main()
