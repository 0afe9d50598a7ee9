"""Train on many ranks with the ModelTrainer of SageMaker's Python SDK v3: in local mode, or on AWS.

Usage: python launch_v3.py [--image IMAGE] [--role ROLE --instance-type ml.g5.xlarge]
"""

import argparse
from pathlib import Path

from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, SourceCode
from sagemaker.train.distributed import Torchrun
from sagemaker.train.model_trainer import Mode

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser()
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
        compute=Compute(instance_type=arguments.instance_type, instance_count=arguments.instance_count),
        source_code=SourceCode(source_dir=str(HERE), entry_script="train.py"),
        # Without GPUs a host has one rank, unless you set a number.
        distributed=Torchrun(process_count_per_node=2 if local else None),
        hyperparameters={"epochs": 8},
    )
    trainer.train()


if __name__ == "__main__":
    main()
