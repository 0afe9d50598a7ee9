"""Run by the environment of SDK v3: jobs of a ModelTrainer in local container mode, one after the other.

Usage: python model_trainer.py JSON, a list of jobs, each with name, image_uri, root (a new folder) and what the trainer
takes: instance_count, inputs (channel: folder), hyperparameters, environment, source_code, and distributed, the name of
its class and its fields. Prints RESULT and, by job's name, the sentence of its error, empty if it ended well.
"""

import json
import sys
from pathlib import Path
from typing import Any

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


errors = {}
for each in json.loads(sys.argv[1]):
    print(f"JOB {each['name']}", flush=True)
    errors[each["name"]] = run(each)
print("RESULT " + json.dumps(errors))
