"""Runs jobs of SDK v3's ModelTrainer in local container mode, one after the other.

Usage: python model_trainer.py JSON, a list of jobs. Each has name, image_uri, root (a new folder) and the trainer's
arguments: instance_count, inputs (channel: folder), hyperparameters, environment, source_code, and distributed (class
name and fields). Optional: serve, for an endpoint of its model, with image_uri, questions and folder (a new one, for
answers.json). Prints RESULT and each job's error by its name, empty after success.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from recording import free_port
from sagemaker.core.local.local_session import LocalSession
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, InputData, SourceCode
from sagemaker.train.distributed import MPI, Torchrun
from sagemaker.train.model_trainer import Mode

DISTRIBUTED = {"MPI": MPI, "Torchrun": Torchrun}


def run(job: dict[str, Any]) -> str:
    Path(job["root"]).mkdir()
    settings = {}
    if "source_code" in job:
        settings["source_code"] = SourceCode(**job["source_code"])
    if "distributed" in job:
        name, fields = job["distributed"]
        settings["distributed"] = DISTRIBUTED[name](**fields)
    trainer = ModelTrainer(
        training_mode=Mode.LOCAL_CONTAINER,
        training_image=job["image_uri"],
        compute=Compute(instance_type="local_cpu", instance_count=job.get("instance_count", 1)),
        hyperparameters=job.get("hyperparameters", {}),
        environment=job.get("environment", {}),
        local_container_root=job["root"],
        **settings,
    )
    channels = job.get("inputs", {})
    try:
        trainer.train([InputData(channel_name=name, data_source=folder) for name, folder in channels.items()])
    except RuntimeError as error:
        return str(error) or repr(error)
    return ""


def serve(archive: Path, image_uri: str, folder: str, questions: list[Any]) -> None:
    """Deploys an archive, and writes its endpoint's answers. The local session's methods resemble boto3's."""
    # The archive needs its own folder: the session unpacks it there, and checks every file in it.
    Path(folder).mkdir()
    shutil.copy(archive, folder)
    session = LocalSession()
    session.config = {"local": {"serving_port": free_port(), "container_root": str(Path(folder).parent)}}
    client = session.sagemaker_client
    container = {"Image": image_uri, "ModelDataUrl": f"file://{folder}/model.tar.gz", "Environment": {}}
    client.create_model("berth", container)
    variant = {"ModelName": "berth", "VariantName": "all", "InstanceType": "local", "InitialInstanceCount": 1}
    client.create_endpoint_config("berth", [variant])
    client.create_endpoint("berth", "berth")
    try:
        answers = [
            session.sagemaker_runtime_client.invoke_endpoint(json.dumps(each), "berth", "application/json")["Body"]
            for each in questions
        ]
        Path(folder, "answers.json").write_text(json.dumps([json.loads(body.read()) for body in answers]))
    finally:
        client.delete_endpoint("berth")


errors = {}
for each in json.loads(sys.argv[1]):
    print(f"JOB {each['name']}", flush=True)
    errors[each["name"]] = run(each)
    if "serve" in each and not errors[each["name"]]:
        serve(Path(each["root"], "compressed_artifacts", "model.tar.gz"), **each["serve"])
print("RESULT " + json.dumps(errors))
