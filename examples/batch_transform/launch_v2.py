"""Answer a file of questions in a batch transform, with SageMaker's Python SDK v2: in local mode, or on AWS.

Usage: python launch_v2.py --model MODEL_TAR_GZ [--input FOLDER|S3_URI] [--output FOLDER|S3_URI] [--image IMAGE]
"""

import argparse
from pathlib import Path

import boto3
from sagemaker.local import LocalSession
from sagemaker.model import Model

HERE = Path(__file__).resolve().parent


def place(text: str) -> str:
    """A local path as a file:// URL; an S3 URI unchanged."""
    return text if text.startswith("s3://") else f"file://{Path(text).resolve()}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="the model.tar.gz of a job, here or on S3")
    parser.add_argument("--input", default=str(HERE / "questions"), help="a folder or S3 prefix with .jsonl files")
    parser.add_argument("--output", default="answers", help="gets a file NAME.out for each file")
    parser.add_argument("--image", default="berth-serve:cpu", help="on AWS the image_uri of the inference image")
    parser.add_argument("--role", default="arn:aws:iam::111122223333:role/any", help="local mode accepts any role")
    parser.add_argument("--instance-type", default="local")
    arguments = parser.parse_args()
    local = arguments.instance_type.startswith("local")
    session = LocalSession(boto3.Session(region_name="us-east-1")) if local else None
    model = Model(
        arguments.image,
        model_data=place(arguments.model),
        role=arguments.role,
        name=None if local else "berth-transform",
        sagemaker_session=session,
    )
    transformer = model.transformer(
        1,
        arguments.instance_type,
        strategy="MultiRecord",
        assemble_with="Line",
        accept="application/jsonlines",
        output_path=place(arguments.output),
    )
    transformer.transform(
        place(arguments.input),
        content_type="application/jsonlines",
        split_type="Line",
        logs=not local,  # local mode has no logs in CloudWatch
    )


if __name__ == "__main__":
    main()
