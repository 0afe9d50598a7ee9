"""Shared code of the programs that run with an SDK; `record` keeps the fields of a job's request that reach the image.

A case is a function that calls the SDK up to its request, which is not sent (aws_double.py).
"""

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import aws_double

IMAGE = "111122223333.dkr.ecr.eu-west-1.amazonaws.com/berth@sha256:" + "0" * 64
BUCKET = "bucket"
JOB = "berth-job"
PROGRAM = "print('a program')\n"
REPOSITORIES = "https://git.example.com/"
"""The repository's address in `git_config`; git maps it to a local folder."""

Case = Callable[[], None]
uploads: dict[str, bytes] = {}
"""The case's uploads to S3, by the last two parts of the key."""


def image_fields(request: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of CreateTrainingJob, or of a tuner's job definition, that reach the container."""
    algorithm = request["AlgorithmSpecification"]
    fields = {
        "HyperParameters": request.get("HyperParameters") or request.get("StaticHyperParameters"),
        "Environment": request.get("Environment"),
        "InputDataConfig": request.get("InputDataConfig"),
        "ResourceConfig": request.get("ResourceConfig") or request["HyperParameterTuningResourceConfig"],
        "CheckpointConfig": request.get("CheckpointConfig"),
        "EnableManagedSpotTraining": request.get("EnableManagedSpotTraining"),
        "ContainerEntrypoint": algorithm.get("ContainerEntrypoint"),
        "ContainerArguments": algorithm.get("ContainerArguments"),
        "MetricDefinitions": algorithm.get("MetricDefinitions"),
    }
    return {name: value for name, value in fields.items() if value}


def record(cases: Mapping[str, Case]) -> dict[str, dict[str, Any]]:
    """The requests of all cases, by name; an error of any case ends the program."""
    requests: list[dict[str, Any]] = []

    def training(parameters: dict[str, Any]) -> dict[str, Any]:
        requests.append(parameters)
        return {"TrainingJobArn": f"arn:aws:sagemaker:eu-west-1:111122223333:training-job/{JOB}"}

    def tuning(parameters: dict[str, Any]) -> dict[str, Any]:
        requests.append(parameters["TrainingJobDefinition"])
        return {"HyperParameterTuningJobArn": "arn:aws:sagemaker:eu-west-1:111122223333:hyper-parameter-tuning-job/t"}

    def uploaded(parameters: dict[str, Any]) -> dict[str, Any]:
        uploads["/".join(parameters["Key"].split("/")[-2:])] = parameters["Body"].read()
        return {"ETag": "0"}

    aws_double.install(
        {
            "CreateTrainingJob": training,
            "CreateHyperParameterTuningJob": tuning,
            "DescribeTrainingJob": lambda _: {"TrainingJobName": JOB, "TrainingJobStatus": "InProgress"},
            "PutObject": uploaded,
        }
    )
    recorded = {}
    for name, case in cases.items():
        uploads.clear()
        requests.clear()
        print(name, file=sys.stderr)
        case()
        (request,) = requests
        recorded[name] = image_fields(request)
    return recorded


def make_sources(work: Path) -> Path:
    """Makes the folder with the cases' programs and package, and next to it a git repository."""
    source = work / "source"
    for name in ("train.py", "train.sh", "packaged/train.py", "packaged/helper.py", "library/library.py"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(PROGRAM)
    (source / "packaged/setup.py").write_text("from setuptools import setup\nsetup(name='train', py_modules=['train'])")
    (source / "requirements.txt").write_text("six\n")
    make_repository(work, {"run_qa.py": PROGRAM})
    return source


def make_repository(work: Path, files: Mapping[str, str]) -> None:
    """Makes the repository `examples` of REPOSITORIES, with these files on its branch `main`."""
    repository = work / "repositories/examples"
    repository.mkdir(parents=True)
    for name, text in files.items():
        (repository / name).write_text(text)
    for command in (
        ("init", "--quiet", "--initial-branch=main"),
        ("add", "."),
        ("-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--message=a program"),
    ):
        subprocess.run(["git", *command], cwd=repository, check=True)


def git_environment(work: Path) -> dict[str, str]:
    """Variables by which git finds REPOSITORIES in a folder."""
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.{work}/repositories/.insteadOf",
        "GIT_CONFIG_VALUE_0": REPOSITORIES,
    }


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def only_the_result() -> Iterator[Callable[[Any], None]]:
    """Redirects stdout, to which the SDKs print, to stderr; `end(result)` prints RESULT and JSON to the real stdout."""
    real = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        yield lambda result: print("RESULT " + json.dumps(result), file=real, flush=True)
