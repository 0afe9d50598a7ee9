"""The ModelTrainer of SageMaker's Python SDK v3 for train.py: in local mode on this machine, or on AWS.

Usage: python launch_v3.py [--image IMAGE] [--role ROLE --instance-type ml.p4d.24xlarge --instance-count 2]

SDK v3 supports only version 2 of the library. So MPI starts the ranks, and the options of version 1 are passed as the
hyperparameter mp_parameters, as SDK v2 does it.
"""

import argparse
from pathlib import Path

from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, SourceCode
from sagemaker.train.distributed import MPI
from sagemaker.train.model_trainer import Mode

HERE = Path(__file__).resolve().parent
PARAMETERS = {"partitions": 2, "microbatches": 4, "pipeline": "interleaved", "ddp": True}


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
        # A rank for each GPU; each further pair of ranks is a replica.
        distributed=MPI(process_count_per_node=2 if local else None),
        hyperparameters={"epochs": 6, "batch_size": 32, "mp_parameters": PARAMETERS},
    )
    trainer.train()


if __name__ == "__main__":
    main()
