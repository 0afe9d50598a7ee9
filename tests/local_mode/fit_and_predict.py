"""Run by the environment of SDK v2: a job in local mode, and, if asked, an endpoint of what it wrote.

Usage: python fit_and_predict.py JSON, with image_uri, hyperparameters, inputs (channel: folder), work (a folder to
write in), perhaps instance_count and instance_type, and, to deploy, serve_image_uri and questions. Prints one line,
RESULT and JSON.
"""

import json
import socket
import sys
import tempfile
from pathlib import Path

import boto3
from sagemaker.deserializers import JSONDeserializer
from sagemaker.estimator import Estimator
from sagemaker.local import LocalSession
from sagemaker.model import Model
from sagemaker.predictor import Predictor
from sagemaker.serializers import JSONSerializer

ROLE = "arn:aws:iam::111122223333:role/dummy"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


job = json.loads(sys.argv[1])
work = Path(job["work"])
session = LocalSession(boto3.Session(region_name="us-east-1"))
root = tempfile.mkdtemp(dir=work)
session.config = {"local": {"local_code": True, "container_root": root, "serving_port": free_port()}}

result: dict[str, object] = {}
estimator = Estimator(
    job["image_uri"],
    ROLE,
    instance_count=job.get("instance_count", 1),
    instance_type=job.get("instance_type", "local"),
    hyperparameters=job["hyperparameters"],
    output_path=f"file://{work}/output",
    sagemaker_session=session,
)
try:
    estimator.fit({name: f"file://{path}" for name, path in job["inputs"].items()})
    result["model_data"] = estimator.model_data
except RuntimeError as error:
    result["error"] = str(error)

if "serve_image_uri" in job and "error" not in result:
    model = Model(
        job["serve_image_uri"],
        model_data=estimator.model_data,
        role=ROLE,
        predictor_cls=Predictor,
        sagemaker_session=session,
    )
    predictor = model.deploy(1, "local", serializer=JSONSerializer(), deserializer=JSONDeserializer())
    try:
        result["answers"] = [predictor.predict({"inputs": question}) for question in job["questions"]]
        result["list"] = predictor.predict({"inputs": job["questions"]})
    finally:
        predictor.delete_endpoint()
print("RESULT " + json.dumps(result))
