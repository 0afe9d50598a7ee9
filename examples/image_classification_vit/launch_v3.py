"""The ModelTrainer of SageMaker's Python SDK v3 for both scripts: in local mode on this machine, or on AWS.

Usage: python launch_v3.py [--parallel model|tensor] [--image IMAGE] [--role ROLE --instance-type ml.p4d.24xlarge]

SDK v3 has no setting for SMDDP, and supports only version 2 of the model parallel library. So Torchrun or MPI starts
the ranks, and the scripts import the libraries. The options of the model parallel library are passed as the
hyperparameter mp_parameters, as SDK v2 does it.
"""

import argparse
from pathlib import Path

from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, SourceCode
from sagemaker.train.distributed import MPI, Torchrun
from sagemaker.train.model_trainer import Mode

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
# Per kind: the script, the launcher of its ranks, the script's own hyperparameters, and the ranks in local mode.
KINDS = {
    "data": ("train.py", Torchrun, {}, 2),
    "model": ("train_smp.py", MPI, {"mp_parameters": PARAMETERS["model"]}, 2),
    "tensor": ("train_smp.py", MPI, {"mp_parameters": PARAMETERS["tensor"]}, 4),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parallel", choices=KINDS, default="data")
    parser.add_argument("--image", default="berth-train:cpu", help="on AWS the image_uri in ECR")
    parser.add_argument("--role", help="not needed in local mode")
    parser.add_argument("--instance-type", default="local_cpu")
    parser.add_argument("--instance-count", type=int, default=1)
    arguments = parser.parse_args()
    local = arguments.instance_type.startswith("local")
    script, launcher, own, ranks = KINDS[arguments.parallel]
    trainer = ModelTrainer(
        training_mode=Mode.LOCAL_CONTAINER if local else Mode.SAGEMAKER_TRAINING_JOB,
        training_image=arguments.image,
        role=arguments.role,
        compute=Compute(instance_type=arguments.instance_type, instance_count=arguments.instance_count),
        source_code=SourceCode(source_dir=str(HERE), entry_script=script),
        # Without GPUs a host has one rank, unless you set a number.
        distributed=launcher(process_count_per_node=ranks if local else None),
        hyperparameters={"epochs": 4, "batch_size": 32, **own},
    )
    trainer.train()


if __name__ == "__main__":
    main()
