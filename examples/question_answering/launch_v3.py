"""Fine-tune question answering (run_qa) with the ModelTrainer of SageMaker's Python SDK v3: in local mode, or on AWS.

Usage: python launch_v3.py --train FOLDER|S3_URI --model FOLDER|S3_URI [--role ROLE --instance-type ml.g5.xlarge]
"""

import argparse

from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, InputData
from sagemaker.train.model_trainer import Mode


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", required=True, help="SQuAD files: a folder here, on AWS its S3 URI")
    parser.add_argument("--model", required=True, help="a pretrained model: a folder here, on AWS its S3 URI")
    parser.add_argument("--max-steps", type=int, default=20)
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
        hyperparameters={"model_name_or_path": "/opt/ml/input/data/model", "max_steps": arguments.max_steps},
    )
    trainer.train(
        [
            InputData(channel_name="train", data_source=arguments.train),
            InputData(channel_name="model", data_source=arguments.model),
        ]
    )


if __name__ == "__main__":
    main()
