"""Train with the Estimator of SageMaker's Python SDK v2, and deploy: in local mode on this machine, or on AWS.

Usage: python launch_v2.py --model FOLDER|S3_URI [--image IMAGE] [--serve-image IMAGE] [--role ROLE]

With --serve-image it deploys the model, asks it one question, and deletes the endpoint.
"""

import argparse
from pathlib import Path
from typing import Any

import boto3
from sagemaker.deserializers import JSONDeserializer
from sagemaker.estimator import Estimator
from sagemaker.local import LocalSession
from sagemaker.serializers import JSONSerializer

HERE = Path(__file__).resolve().parent


def local_settings() -> dict[str, Any]:
    """Settings of local mode, so that nothing is uploaded to S3. The model is written into the folder `output`."""
    session = LocalSession(boto3.Session(region_name="us-east-1"))
    session.config = {"local": {"local_code": True}}
    return {"sagemaker_session": session, "output_path": f"file://{Path('output').resolve()}"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="a pretrained model: a folder here, on AWS its S3 URI")
    parser.add_argument("--image", default="berth-train:cpu", help="on AWS the image_uri in ECR")
    parser.add_argument("--serve-image", default="", help="the inference image, such as berth-serve:cpu")
    parser.add_argument("--role", default="arn:aws:iam::111122223333:role/any", help="local mode accepts any role")
    parser.add_argument("--instance-type", default="local")
    parser.add_argument("--instance-count", type=int, default=1)
    arguments = parser.parse_args()
    local = arguments.instance_type.startswith("local")
    estimator = Estimator(
        image_uri=arguments.image,
        entry_point="train.py",
        source_dir=str(HERE),
        role=arguments.role,
        instance_type=arguments.instance_type,
        instance_count=arguments.instance_count,
        base_job_name="text-classification",
        # One rank per GPU; without GPUs one per host.
        environment={"BERTH_DISTRIBUTION": "mpi"},
        hyperparameters={"epochs": 3},
        **(local_settings() if local else {}),
    )
    estimator.fit({"model": f"file://{Path(arguments.model).resolve()}" if local else arguments.model})
    if arguments.serve_image:
        predictor = estimator.deploy(
            initial_instance_count=1,
            instance_type=arguments.instance_type,
            image_uri=arguments.serve_image,
            serializer=JSONSerializer(),
            deserializer=JSONDeserializer(),
            wait=not local,  # in local mode this skips the SDK's fixed wait of 30 s
        )
        print(predictor.predict({"inputs": ["The music was a joy.", "The ending was dull."]}))
        predictor.delete_endpoint()


if __name__ == "__main__":
    main()
