"""Records the requests of SDK v2's estimators for training jobs, with a case for each kind of request.

Usage: python record_v2.py FOLDER (to write in). Prints RESULT and, as JSON by case, the parts that reach the image.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import boto3
import sagemaker.utils
from aws_double import ROLE
from recording import BUCKET, IMAGE, JOB, REPOSITORIES, Case, git_environment, make_sources, only_the_result, record
from sagemaker.estimator import Estimator
from sagemaker.huggingface import HuggingFace
from sagemaker.inputs import TrainingInput
from sagemaker.instance_group import InstanceGroup
from sagemaker.pytorch import PyTorch
from sagemaker.session import Session
from sagemaker.tuner import ContinuousParameter, HyperparameterTuner

WORK = Path(sys.argv[1]).resolve()
SOURCE = str(make_sources(WORK))
SESSION = Session(boto3.Session(region_name="eu-west-1"), default_bucket=BUCKET)  # one for all: each takes a second
# Otherwise the SDK validates its settings twenty times per job, which takes a second.
sagemaker.utils.validate_sagemaker_config = lambda _: None
DATA: Any = {"train": f"s3://{BUCKET}/train"}
OPTIONS = "-verbose -x NCCL_DEBUG=VERSION"
VALUES: Any = {
    "yes": True,
    "rate": 3e-5,
    "count": 3,
    "name": "bert",
    "empty": "",
    "list": [1, 2],
    "dict": {"a": 1},
    "none": None,
    "encoded": json.dumps("bert"),
    "twice": json.dumps(json.dumps("bert")),
}


def settings(estimator: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of all estimators; a case overrides them, None omits one."""
    all_of_them = {
        "image_uri": IMAGE,
        "role": ROLE,
        "instance_count": 1,
        "instance_type": "ml.c5.2xlarge",
        "sagemaker_session": SESSION,
        # Else they would add hooks of their own to a framework's request.
        "debugger_hook_config": False,
        "disable_profiler": True,
    }
    if estimator is HuggingFace:
        all_of_them["py_version"] = "py311"
    return {name: value for name, value in (all_of_them | arguments).items() if value is not None}


def fit(estimator: Any = Estimator, data: Any = DATA, **arguments: Any) -> Case:
    """A case: an estimator with these arguments, and `fit`."""
    return lambda: estimator(**settings(estimator, arguments)).fit(data, wait=False, job_name=JOB)


def own(estimator: Any, distribution: Any = None, hosts: int = 1, **arguments: Any) -> Case:
    """A case: an estimator with a user's program."""
    program = {"entry_point": "train.py", "source_dir": SOURCE, "instance_count": hosts}
    return fit(estimator, **program | {"distribution": distribution} | arguments)


def mpi(**options: Any) -> dict[str, Any]:
    return {"mpi": {"enabled": True, **options}}


def smddp(**options: Any) -> dict[str, Any]:
    return {"smdistributed": {"dataparallel": {"enabled": True, **options}}}


def tune(estimator: Any, **arguments: Any) -> Case:
    """A case: a tuner's request. SageMaker adds the tried values to the recorded hyperparameters."""
    metrics = [{"Name": "loss", "Regex": "loss = ([0-9.]+)"}]
    ranges = {"learning_rate": ContinuousParameter(1e-5, 1e-3)}

    def case() -> None:
        made = estimator(**settings(estimator, {"hyperparameters": {"epochs": 1}} | arguments))
        HyperparameterTuner(made, "loss", ranges, metrics, objective_type="Minimize").fit(
            DATA, job_name=JOB, wait=False
        )

    return case


SEVERAL_HOSTS = {"instance_count": 2}
GENERIC: dict[str, Case] = {
    "Estimator": fit(),
    "Estimator, hyperparameters of all kinds": fit(hyperparameters=VALUES),
    "Estimator, processes_per_host": fit(hyperparameters={"processes_per_host": 2}, **SEVERAL_HOSTS),
    "Estimator, distribution": fit(distribution=mpi(processes_per_host=2), **SEVERAL_HOSTS),
    "Estimator, entry_point .py": fit(entry_point="train.py", source_dir=SOURCE),
    "Estimator, entry_point .sh": fit(entry_point="train.sh", source_dir=SOURCE),
    "Estimator, entry_point .py, two hosts": own(Estimator, hosts=2),
    "Estimator, entry_point .py, distribution": own(Estimator, mpi(), hosts=2),
    "Estimator, entry_point .py, hyperparameters of all kinds": own(Estimator, hyperparameters=VALUES),
    "Estimator, source folder with setup.py": own(Estimator, source_dir=f"{SOURCE}/packaged"),
    "Estimator, dependencies": own(Estimator, dependencies=[f"{SOURCE}/library"]),
    "Estimator, BERTH_DISTRIBUTION mpi": own(Estimator, environment={"BERTH_DISTRIBUTION": "mpi"}, hosts=2),
    "Estimator, BERTH_DISTRIBUTION smddp": own(Estimator, environment={"BERTH_DISTRIBUTION": "smddp"}, hosts=2),
    "Estimator, BERTH_PROCESSES_PER_HOST": own(
        Estimator, environment={"BERTH_DISTRIBUTION": "mpi", "BERTH_PROCESSES_PER_HOST": "2"}, hosts=2
    ),
    "Estimator, SAGEMAKER_PROGRAM": fit(environment={"SAGEMAKER_PROGRAM": "train.py"}),
    "Estimator, metric_definitions": fit(metric_definitions=[{"Name": "f1", "Regex": "f1 = ([0-9.]+)"}]),
    "Estimator, a tuner's job": tune(Estimator, hyperparameters={"num_train_epochs": 1, "fp16": True}),
    "Estimator, model_uri": fit(model_uri=f"s3://{BUCKET}/model.tar.gz"),
    "Estimator, checkpoint_s3_uri on spot": fit(
        checkpoint_s3_uri=f"s3://{BUCKET}/checkpoints", use_spot_instances=True, max_run=3600, max_wait=7200
    ),
    "Estimator, network isolation": own(Estimator, enable_network_isolation=True),
    "Estimator, container_entry_point": fit(container_entry_point=["python3", "-c"], container_arguments=["print(1)"]),
    "Estimator, ShardedByS3Key": fit(
        data={"train": TrainingInput(DATA["train"], distribution="ShardedByS3Key")}, **SEVERAL_HOSTS
    ),
}
GPUS = {"instance_type": "ml.p4d.24xlarge"}
MODEL_PARALLEL = {"smdistributed": {"modelparallel": {"enabled": True, "parameters": {"partitions": 2}}}}
GROUPS = [InstanceGroup("cpus", "ml.c5.2xlarge", 1), InstanceGroup("gpus", "ml.p4d.24xlarge", 2)]


def framework(estimator: Any) -> dict[str, Case]:
    """Cases of both PyTorch and HuggingFace: each distribution, and each source of programs."""
    cases = {
        "no distribution": own(estimator),
        "no distribution, two hosts": own(estimator, hosts=2),
        "mpi": own(estimator, mpi()),
        "mpi, processes_per_host and custom_mpi_options, two hosts": own(
            estimator, mpi(processes_per_host=2, custom_mpi_options=OPTIONS), hosts=2
        ),
        "smdistributed.dataparallel": own(estimator, smddp(), hosts=2, **GPUS),
        "smdistributed.dataparallel, custom_mpi_options": own(
            estimator, smddp(custom_mpi_options=OPTIONS), hosts=2, **GPUS
        ),
        "torch_distributed": own(estimator, {"torch_distributed": {"enabled": True}}, hosts=2, **GPUS),
        "pytorchddp": own(estimator, {"pytorchddp": {"enabled": True}}, hosts=2, **GPUS),
        "git_config": own(
            estimator,
            entry_point="run_qa.py",
            source_dir=None,
            git_config={"repo": f"{REPOSITORIES}examples", "branch": "main"},
        ),
        "hyperparameters of all kinds": own(estimator, hyperparameters=VALUES),
    }
    return {f"{estimator.__name__}, {name}": case for name, case in cases.items()}


PYTORCH: dict[str, Case] = {
    "PyTorch, mpi beside parameter_server off": own(PyTorch, mpi() | {"parameter_server": {"enabled": False}}),
    "PyTorch, parameter_server": own(PyTorch, {"parameter_server": {"enabled": True}}, hosts=2),
    "PyTorch, smdistributed.modelparallel": own(PyTorch, mpi(processes_per_host=8) | MODEL_PARALLEL, **GPUS),
    "PyTorch, mpi that sets -np": own(PyTorch, mpi(custom_mpi_options="-np 4")),
    "PyTorch, mpi, more processes than GPUs": own(PyTorch, mpi(processes_per_host=9), **GPUS),
    "PyTorch, mpi on one of two instance groups": own(
        PyTorch,
        mpi() | {"instance_groups": [GROUPS[1]]},
        hosts=None,
        instance_type=None,
        instance_groups=GROUPS,
    ),
    "PyTorch, SAGEMAKER_REQUIREMENTS": own(PyTorch, environment={"SAGEMAKER_REQUIREMENTS": "requirements.txt"}),
    "PyTorch, a tuner's job": tune(PyTorch, entry_point="train.py", source_dir=SOURCE),
}

if __name__ == "__main__":
    os.environ.update(git_environment(WORK))
    with only_the_result() as end:
        end(record(GENERIC | framework(PyTorch) | PYTORCH | framework(HuggingFace)))
