"""Runs a job in local mode with SDK v2, and on request deploys its model in several ways.

Usage: python fit_and_predict.py JSON, with image_uri, hyperparameters, inputs (channel: folder) and work (a folder to
write in); optionally instance_count, instance_type and entry_point (a program for the PyTorch estimator). To deploy:
serve_image_uri, questions, ways (of WAYS), and if they need it handler (a folder with an inference.py) and endpoint_url
(of S3). Prints one line, RESULT and JSON.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import boto3
from recording import free_port
from sagemaker.deserializers import CSVDeserializer, JSONDeserializer
from sagemaker.estimator import Estimator
from sagemaker.huggingface import HuggingFaceModel
from sagemaker.local import LocalSession
from sagemaker.model import Model
from sagemaker.predictor import Predictor
from sagemaker.pytorch import PyTorch, PyTorchModel
from sagemaker.serializers import CSVSerializer, JSONSerializer

ROLE = "arn:aws:iam::111122223333:role/dummy"
# The SDK decides by these versions where a framework's code is, whatever the image.
VERSIONS = {"framework_version": "2.1", "py_version": "py310"}


def local_session(*, local_code: bool = True) -> LocalSession:
    """local_code: programs stay on this machine; otherwise the SDK uploads them to S3."""
    session = LocalSession(boto3.Session(region_name="us-east-1"), default_bucket="bucket")
    root = tempfile.mkdtemp(dir=work)
    session.config = {"local": {"local_code": local_code, "container_root": root, "serving_port": free_port()}}
    return session


def estimator_of(job: dict[str, Any]) -> Any:
    common = {
        "image_uri": job["image_uri"],
        "role": ROLE,
        "instance_count": job.get("instance_count", 1),
        "instance_type": job.get("instance_type", "local"),
        "hyperparameters": job["hyperparameters"],
        "output_path": f"file://{work}/output",
        "sagemaker_session": local_session(),
    }
    return (
        PyTorch(entry_point=job["entry_point"], **VERSIONS, **common) if "entry_point" in job else Estimator(**common)
    )


def model(estimator: Any, **deployed: Any) -> Any:
    return Model(predictor_cls=Predictor, **model_arguments(estimator)).deploy(**deployed)


def pytorch_model(estimator: Any, **deployed: Any) -> Any:
    """Deploys with a handler given by its path on this machine, without source_dir."""
    source = {"entry_point": f"{job['handler']}/inference.py", **VERSIONS}
    return PyTorchModel(**source, **model_arguments(estimator)).deploy(**deployed)


def hugging_face_model(estimator: Any, **deployed: Any) -> Any:
    """Deploys with a handler that is packed into the archive, which is uploaded to S3."""
    session = {"sagemaker_session": local_session(local_code=False)}
    source = {"entry_point": "inference.py", "source_dir": job["handler"], "py_version": "py310"}
    return HuggingFaceModel(**source, **model_arguments(estimator) | session).deploy(**deployed)


def model_arguments(estimator: Any) -> dict[str, Any]:
    return {
        "image_uri": job["serve_image_uri"],
        "model_data": estimator.model_data,
        "role": ROLE,
        "sagemaker_session": estimator.sagemaker_session,
    }


def deploy_estimator(estimator: Any, **deployed: Any) -> Any:
    """Deploys the estimator itself, which passes its own program."""
    return estimator.deploy(image_uri=job["serve_image_uri"], **deployed)


WAYS = {
    "Model": model,
    "PyTorchModel": pytorch_model,
    "HuggingFaceModel": hugging_face_model,
    "estimator": deploy_estimator,
}


def answers_of(predictor: Any) -> dict[str, Any]:
    """The endpoint's answers to each question, to all at once, and to CSV rows; then deletes the endpoint."""
    questions = job["questions"]
    try:
        answers = [predictor.predict({"inputs": question}) for question in questions]
        at_once = predictor.predict({"inputs": questions})
        predictor.serializer, predictor.deserializer = CSVSerializer(), CSVDeserializer()
        rows = predictor.predict([[question["question"], question["context"]] for question in questions])
        predictor.delete_model()
    finally:
        predictor.delete_endpoint()
    return {"answers": answers, "list": at_once, "rows": rows}


job = json.loads(sys.argv[1])
work = Path(job["work"])
if "endpoint_url" in job:
    os.environ["AWS_ENDPOINT_URL_S3"] = job["endpoint_url"]
result: dict[str, Any] = {}
estimator = estimator_of(job)
try:
    estimator.fit({name: f"file://{path}" for name, path in job["inputs"].items()})
    estimator.logs()
    result["model_data"] = estimator.model_data
except RuntimeError as error:
    result["error"] = str(error)
if "error" not in result:
    for way in job.get("ways", []):
        # wait=True would sleep for 30 s, although in local mode the endpoint is ready when the call returns.
        serialized = {"serializer": JSONSerializer(), "deserializer": JSONDeserializer()}
        result[way] = answers_of(
            WAYS[way](estimator, initial_instance_count=1, instance_type="local", wait=False, **serialized)
        )
print("RESULT " + json.dumps(result))
