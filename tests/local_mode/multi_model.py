"""Runs SDK v2's MultiDataModel; passes its requests to a container as SageMaker's hosting does.

Usage: python multi_model.py JSON, with image_uri, models (archives by name), questions, folder (the container's
/opt/ml/models) and url (of the container). Prints RESULT and, as JSON, the requests to SageMaker, the listed models and
each model's answers.
"""

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import aws_double
import boto3
from botocore.response import StreamingBody
from sagemaker.deserializers import JSONDeserializer
from sagemaker.multidatamodel import MultiDataModel
from sagemaker.predictor import Predictor
from sagemaker.serializers import JSONSerializer
from sagemaker.session import Session

PREFIX = "s3://bucket/models/"
job = json.loads(sys.argv[1])
bucket: dict[str, bytes] = {}


def put_object(parameters: dict[str, Any]) -> dict[str, Any]:
    bucket[parameters["Key"]] = parameters["Body"].read()
    return {"ETag": "0"}


def list_objects(parameters: dict[str, Any]) -> dict[str, Any]:
    return {"Contents": [{"Key": key} for key in bucket if key.startswith(parameters["Prefix"])], "IsTruncated": False}


def send(path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    try:
        with urlopen(Request(job["url"] + path, body, headers), timeout=60) as answer:
            return answer.status, answer.read()
    except HTTPError as error:
        return error.code, error.read()


def invoke_endpoint(parameters: dict[str, Any]) -> dict[str, Any]:
    """Does SageMaker's part: unpacks and loads the archive of TargetModel if needed, and passes the request on."""
    target = parameters["TargetModel"]
    name = hashlib.sha256(target.encode()).hexdigest()[:32]
    folder = Path(job["folder"], name, "model")
    if not folder.exists():
        with tarfile.open(fileobj=io.BytesIO(bucket["models/" + target])) as archive:
            archive.extractall(folder)
        load = {"model_name": name, "url": f"/opt/ml/models/{name}/model"}
        status, reply = send("/models", json.dumps(load).encode(), {"Content-Type": "application/json"})
        assert status == 200, reply
    headers = {"X-Amzn-SageMaker-Target-Model": target}
    for header, field in (("Content-Type", "ContentType"), ("Accept", "Accept")):
        if field in parameters:
            headers[header] = parameters[field]
    status, answer = send(f"/models/{name}/invoke", parameters["Body"].encode(), headers)
    assert status == 200, answer
    return {"Body": StreamingBody(io.BytesIO(answer), len(answer)), "ContentType": "application/json"}


aws_double.install({"PutObject": put_object, "ListObjects": list_objects, "InvokeEndpoint": invoke_endpoint})
model = MultiDataModel(
    "berth",
    PREFIX,
    image_uri=job["image_uri"],
    role=aws_double.ROLE,
    predictor_cls=Predictor,
    sagemaker_session=Session(boto3.Session(region_name="us-east-1")),
)
predictor = model.deploy(
    1, "ml.m5.xlarge", serializer=JSONSerializer(), deserializer=JSONDeserializer(), endpoint_name="berth", wait=False
)
for target, archive in job["models"].items():
    model.add_model(archive, target)
listed = list(model.list_models())
answers = {target: [predictor.predict(each, target_model=target) for each in job["questions"]] for target in listed}
print("RESULT " + json.dumps({"requests": aws_double.requests, "listed": listed, "answers": answers}))
