"""Records the requests of SDK v3's ModelTrainer, with a case for each kind of request.

Usage: python record_v3.py FOLDER (to write in). Prints RESULT and JSON: by case the parts that reach the image, and
with source code also the driver's settings.
"""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

os.environ["AWS_DEFAULT_REGION"] = "eu-west-1"

import boto3
from aws_double import ROLE
from recording import BUCKET, IMAGE, Case, make_sources, only_the_result, record, uploads
from sagemaker.core.helper.session_helper import Session
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, InputData, SourceCode
from sagemaker.train.distributed import MPI, Torchrun

SOURCE = str(make_sources(Path(sys.argv[1]).resolve()))
VALUES: Any = {"yes": True, "rate": 3e-5, "count": 3, "name": "bert", "list": [1, 2], "dict": {"a": 1}, "none": None}
SESSION = Session(boto3.Session(region_name="eu-west-1"), default_bucket=BUCKET)
CODE = SourceCode(source_dir=SOURCE, entry_script="train.py")
drivers: dict[str, Any] = {}
"""Case → the settings of its driver."""


def train(name: str, code: SourceCode | None = None, *, hosts: int = 1, **arguments: Any) -> Case:
    def case() -> None:
        trainer = ModelTrainer(
            training_image=IMAGE,
            role=ROLE,
            base_job_name="berth",
            sagemaker_session=SESSION,
            compute=Compute(instance_type="ml.c5.2xlarge", instance_count=hosts),
            source_code=code,
            **arguments,
        )
        inputs = [InputData(channel_name="train", data_source=f"s3://{BUCKET}/train")]
        trainer.train(inputs, wait=False, logs=False)
        if code is not None:
            script = uploads["sm_drivers/sm_train.sh"].decode()
            drivers[name] = {
                "distributed.json": json.loads(uploads["sm_drivers/distributed.json"]),
                "runs": re.findall(r"distributed_drivers/(\w+\.py)$", script, re.MULTILINE),
                "command": re.findall(r"EOF'\n(.*)\nSAGEMAKER", script),
            }

    return case


WAYS: dict[str, dict[str, Any]] = {
    "ModelTrainer": {},
    "ModelTrainer, two hosts": {"hosts": 2},
    "ModelTrainer, hyperparameters of all kinds": {"hyperparameters": VALUES},
    "ModelTrainer, processes_per_host": {"hyperparameters": {"processes_per_host": 2}, "hosts": 2},
    "ModelTrainer, source code": {"code": CODE},
    "ModelTrainer, source code, two hosts": {"code": CODE, "hosts": 2},
    "ModelTrainer, requirements": {
        "code": SourceCode(source_dir=SOURCE, entry_script="train.py", requirements="requirements.txt")
    },
    "ModelTrainer, command": {"code": SourceCode(source_dir=SOURCE, command="bash train.sh")},
    "ModelTrainer, environment": {"code": CODE, "environment": {"NAME": "value"}},
    "ModelTrainer, Torchrun": {"code": CODE, "distributed": Torchrun()},
    "ModelTrainer, Torchrun, two processes on two hosts": {
        "code": CODE,
        "distributed": Torchrun(process_count_per_node=2),
        "hosts": 2,
    },
    "ModelTrainer, MPI": {"code": CODE, "distributed": MPI()},
    "ModelTrainer, MPI, two processes on two hosts": {
        "code": CODE,
        "distributed": MPI(process_count_per_node=2, mpi_additional_options=["-x", "NCCL_DEBUG=VERSION"]),
        "hosts": 2,
    },
}


def without_times(recorded: Any) -> Any:
    """Replaces the time in the job's name and S3 addresses, so that recordings are equal."""
    return json.loads(re.sub(r"berth-\d{14}(?:-\w+)?", "berth-job", json.dumps(recorded)))


if __name__ == "__main__":
    with only_the_result() as end:
        recorded = record({name: train(name, **way) for name, way in WAYS.items()})
        for name, driver in drivers.items():
            recorded[name]["Driver"] = driver
        end(without_times(recorded))
