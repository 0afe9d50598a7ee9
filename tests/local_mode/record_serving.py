"""Records the requests of SDK v2's models and estimators for endpoints and batch transforms.

Usage: python record_serving.py FOLDER (to write in). Prints RESULT and JSON: by case the parts that reach the image.
"""

import io
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aws_double
import boto3
import sagemaker.utils
from aws_double import ROLE
from recording import BUCKET, IMAGE, JOB, PROGRAM, Case, only_the_result
from sagemaker.async_inference import AsyncInferenceConfig
from sagemaker.estimator import Estimator
from sagemaker.huggingface import HuggingFace, HuggingFaceModel
from sagemaker.model import Model
from sagemaker.multidatamodel import MultiDataModel
from sagemaker.pytorch import PyTorch, PyTorchModel
from sagemaker.serverless import ServerlessInferenceConfig
from sagemaker.session import Session

SOURCE = f"{sys.argv[1]}/source"
SESSION = Session(boto3.Session(region_name="eu-west-1"), default_bucket=BUCKET)
# Otherwise the SDK validates its settings twenty times per request.
sagemaker.utils.validate_sagemaker_config = lambda _: None
MODEL = f"s3://{BUCKET}/model.tar.gz"
SERVERS = {"SAGEMAKER_USE_NGINX": "True", "MMS_DEFAULT_WORKERS_PER_MODEL": "2", "MMS_DEFAULT_RESPONSE_TIMEOUT": "500"}
VERSION = {"framework_version": "2.1", "py_version": "py310"}
PY = {"py_version": "py310"}
ARCHIVE = io.BytesIO()
with tarfile.open(fileobj=ARCHIVE, mode="w:gz") as empty:
    empty.addfile(tarfile.TarInfo("config.json"))
stored: dict[str, bytes] = {}
"""The double of S3: key → content."""
containers: list[dict[str, Any]] = []
transforms: list[dict[str, Any]] = []


def put(parameters: dict[str, Any]) -> dict[str, Any]:
    stored[parameters["Key"]] = parameters["Body"].read()
    return {"ETag": "0"}


def get(parameters: dict[str, Any]) -> dict[str, Any]:
    body = stored[parameters["Key"]]
    return {"Body": io.BytesIO(body), "ContentLength": len(body), "ETag": "0"}


def create_model(parameters: dict[str, Any]) -> dict[str, Any]:
    containers.append(parameters["PrimaryContainer"])
    return {"ModelArn": "arn:aws:sagemaker:eu-west-1:111122223333:model/berth"}


def create_transform_job(parameters: dict[str, Any]) -> dict[str, Any]:
    transforms.append(parameters)
    return {"TransformJobArn": "arn:aws:sagemaker:eu-west-1:111122223333:transform-job/berth"}


def code_of(container: dict[str, Any]) -> list[str]:
    """The code files in the model's archive and in the archive that the container fetches."""
    uris = [container.get("ModelDataUrl", ""), container.get("Environment", {}).get("SAGEMAKER_SUBMIT_DIRECTORY", "")]
    names: list[str] = []
    for uri in uris:
        key = uri.removeprefix(f"s3://{BUCKET}/")
        if key in stored:
            with tarfile.open(fileobj=io.BytesIO(stored[key])) as tar:
                names += [member.name.lstrip("./") for member in tar if member.isfile()]
    return sorted(name for name in names if name != "config.json")


def endpoint(model: Callable[[], Any], **arguments: Any) -> Case:
    settings = {"initial_instance_count": 1, "instance_type": "ml.m5.xlarge", "endpoint_name": "berth", "wait": False}
    return lambda: model().deploy(**settings | arguments)


def using(model: Any, **arguments: Any) -> Callable[[], Any]:
    """A function that creates a model, called when the case runs."""
    settings = {"image_uri": IMAGE, "model_data": MODEL, "role": ROLE, "name": "berth", "sagemaker_session": SESSION}
    return lambda: model(**settings | arguments)


def job(estimator: Any, **arguments: Any) -> Callable[[], Any]:
    """An estimator whose job has ended."""

    def fitted() -> Any:
        settings = {"image_uri": IMAGE, "role": ROLE, "instance_count": 1, "instance_type": "ml.c5.xlarge"}
        quiet = {"sagemaker_session": SESSION, "debugger_hook_config": False, "disable_profiler": True}
        made = estimator(**settings | quiet | arguments)
        made.fit({"train": f"s3://{BUCKET}/train"}, wait=False, job_name=JOB)
        return made

    return fitted


def transform(model: Callable[[], Any], **arguments: Any) -> Case:
    def case() -> None:
        transformer = model().transformer(1, "ml.m5.xlarge", output_path=f"s3://{BUCKET}/answers", **arguments)
        transformer.transform(f"s3://{BUCKET}/questions", content_type="application/jsonlines", wait=False)

    return case


CODE = {"entry_point": "inference.py", "source_dir": SOURCE}
TRAINING = {"entry_point": "train.py", "source_dir": SOURCE}
DEPLOYED = {"image_uri": IMAGE, "model_name": "berth"}
CASES: dict[str, Case] = {
    "Model": endpoint(using(Model)),
    "Model, variables of other servers": endpoint(using(Model, env=SERVERS)),
    "Model, SAGEMAKER_MODEL_SERVER_TIMEOUT": endpoint(using(Model, env={"SAGEMAKER_MODEL_SERVER_TIMEOUT": "30"})),
    "Model, entry_point": endpoint(using(Model, entry_point=f"{SOURCE}/inference.py")),
    "Model, entry_point and source_dir": endpoint(using(Model, **CODE)),
    "Model, network isolation": endpoint(using(Model, enable_network_isolation=True, **CODE)),
    "Model, serverless": endpoint(using(Model), serverless_inference_config=ServerlessInferenceConfig()),
    "Model, asynchronous": endpoint(
        using(Model), async_inference_config=AsyncInferenceConfig(output_path=f"s3://{BUCKET}/answers")
    ),
    "PyTorchModel": endpoint(using(PyTorchModel, **VERSION)),
    "PyTorchModel, code and workers": endpoint(using(PyTorchModel, model_server_workers=2, **VERSION, **CODE)),
    "PyTorchModel, code of before framework_version 1.2": endpoint(
        using(PyTorchModel, framework_version="1.1", py_version="py3", **CODE)
    ),
    "HuggingFaceModel": endpoint(using(HuggingFaceModel, **PY)),
    "HuggingFaceModel, code": endpoint(using(HuggingFaceModel, **PY, **CODE)),
    "HuggingFaceModel, of the hub": endpoint(
        using(HuggingFaceModel, model_data=None, env={"HF_MODEL_ID": "me/model", "HF_TASK": "question-answering"}, **PY)
    ),
    "Estimator": endpoint(job(Estimator), **DEPLOYED),
    "Estimator, entry_point": endpoint(job(Estimator, **TRAINING), **DEPLOYED),
    "PyTorch": endpoint(job(PyTorch, **VERSION, **TRAINING), **DEPLOYED),
    "PyTorch, entry_point .sh": endpoint(
        job(PyTorch, **VERSION, entry_point="train.sh", source_dir=SOURCE), **DEPLOYED
    ),
    "PyTorch, a handler": endpoint(job(PyTorch, **VERSION, **TRAINING), entry_point="inference.py", **DEPLOYED),
    "HuggingFace": endpoint(job(HuggingFace, **PY, **TRAINING), **DEPLOYED),
    "MultiDataModel": endpoint(
        lambda: MultiDataModel("berth", f"s3://{BUCKET}/models/", image_uri=IMAGE, role=ROLE, sagemaker_session=SESSION)
    ),
    "Model, transformer": transform(using(Model)),
    "Model, transformer with all that it takes": transform(
        using(Model),
        strategy="SingleRecord",
        max_payload=1,
        max_concurrent_transforms=2,
        env={"BERTH_PRECISION": "fp32"},
    ),
}


def record() -> dict[str, Any]:
    """The parts of each case's requests that reach the image."""
    completed = {"TrainingJobStatus": "Completed", "ModelArtifacts": {"S3ModelArtifacts": MODEL}}
    aws_double.install(
        {
            "CreateModel": create_model,
            "CreateTransformJob": create_transform_job,
            "DescribeTrainingJob": lambda _: {"TrainingJobName": JOB, **completed},
            "PutObject": put,
            "GetObject": get,
            "HeadObject": get,
        }
    )
    Path(SOURCE).mkdir(exist_ok=True)
    for name in ("inference.py", "train.py", "train.sh"):
        Path(SOURCE, name).write_text(PROGRAM)
    recorded = {}
    for name, case in CASES.items():
        stored.clear()
        stored["model.tar.gz"] = ARCHIVE.getvalue()
        containers.clear()
        transforms.clear()
        print(name, file=sys.stderr)
        case()
        (container,) = containers
        fields = {field: container.get(field) for field in ("ModelDataUrl", "Environment", "Mode")}
        fields["Code"] = code_of(container)
        recorded[name] = {field: value for field, value in fields.items() if value}
        for request in transforms:  # recorded even if empty: the container learns of every transform
            wanted = ("Environment", "BatchStrategy", "MaxPayloadInMB", "MaxConcurrentTransforms")
            recorded[name]["Transform"] = {field: request[field] for field in wanted if field in request}
    return recorded


if __name__ == "__main__":
    with only_the_result() as end:
        end(record())
