"""Train on spot instances with the ModelTrainer of SageMaker's Python SDK v3; in local mode without spot.

Usage: python launch_v3.py [--image IMAGE] [--role ROLE --instance-type ml.g5.xlarge --checkpoints S3_URI]
"""

import argparse
from pathlib import Path
from typing import Any

from sagemaker.train import ModelTrainer
from sagemaker.train.configs import CheckpointConfig, Compute, SourceCode, StoppingCondition
from sagemaker.train.model_trainer import Mode

HERE = Path(__file__).resolve().parent


def interruptible(checkpoints: str) -> dict[str, Any]:
    """Settings of a job that may wait for a host and be interrupted."""
    return {
        "stopping_condition": StoppingCondition(max_runtime_in_seconds=24 * 3600, max_wait_time_in_seconds=36 * 3600),
        "checkpoint_config": CheckpointConfig(s3_uri=checkpoints),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoints", default="", help="on AWS the S3 URI where checkpoints are kept")
    parser.add_argument("--image", default="berth-train:cpu", help="on AWS the image_uri in ECR")
    parser.add_argument("--role", help="not needed in local mode")
    parser.add_argument("--instance-type", default="local_cpu")
    parser.add_argument("--instance-count", type=int, default=1)
    arguments = parser.parse_args()
    local = arguments.instance_type.startswith("local")
    trainer = ModelTrainer(
        training_mode=Mode.LOCAL_CONTAINER if local else Mode.SAGEMAKER_TRAINING_JOB,
        training_image=arguments.image,
        role=arguments.role,
        compute=Compute(
            instance_type=arguments.instance_type,
            instance_count=arguments.instance_count,
            enable_managed_spot_training=not local,
        ),
        source_code=SourceCode(source_dir=str(HERE), entry_script="train.py"),
        **({} if local else interruptible(arguments.checkpoints)),
    )
    trainer.train()


if __name__ == "__main__":
    main()
