"""Runs jobs of SDK v2's estimators in local mode, one after the other in one process.

Usage: python jobs_v2.py JSON, with image_uri, work (a folder to write in), jobs (names of JOBS), s3 (the address of
moto's server, as a container reaches it) and, for run_qa, data (channel: folder) and hyperparameters. Prints RESULT
and, as JSON, each job's log, its seconds, and the files that its ranks wrote into the model.
"""

import contextlib
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
from recording import BUCKET, REPOSITORIES, git_environment, make_repository, only_the_result
from sagemaker.estimator import Estimator
from sagemaker.huggingface import HuggingFace
from sagemaker.local import LocalSession
from sagemaker.pytorch import PyTorch

ROLE = "arn:aws:iam::111122223333:role/any"
# The SDK accepts these distributions only for an instance type with GPUs. The job itself runs on this machine.
AS_ON_GPUS = "ml.p4d.24xlarge"
TWO_RANKS = {"BERTH_PROCESSES_PER_HOST": "2"}
OPTIONS = "-verbose -x NCCL_DEBUG=VERSION"
VALUES = {"yes": True, "rate": 3e-5, "name": "bert", "list": [1, 2], "encoded": json.dumps("bert"), "none": None}

Job = Callable[[Path], tuple[Any, dict[str, Any]]]
"""A function of the source folder that returns an estimator's class and its own arguments."""


def mpi(processes: int) -> dict[str, Any]:
    return {"mpi": {"enabled": True, "processes_per_host": processes, "custom_mpi_options": OPTIONS}}


def smddp_of_a_repository(_: Path) -> tuple[Any, dict[str, Any]]:
    """A job with smdistributed's distribution and a program from git.

    The key that a tuner adds must not become an argument of the program; the log has mpirun's command.
    """
    distribution = {"smdistributed": {"dataparallel": {"enabled": True, "custom_mpi_options": OPTIONS}}}
    return HuggingFace, {
        "entry_point": "together.py",
        "git_config": {"repo": f"{REPOSITORIES}examples", "branch": "main"},
        "distribution": distribution,
        "instance_type": AS_ON_GPUS,
        "environment": TWO_RANKS | {"BERTH_LOG_LEVEL": "debug"},
        "hyperparameters": {"_tuning_objective_metric": "loss"},
    }


def program(estimator: Any, entry: str = "together.py", folder: str = "", hosts: int = 1, **arguments: Any) -> Job:
    return lambda source: (
        estimator,
        {"entry_point": entry, "source_dir": str(source / folder), "instance_count": hosts, **arguments},
    )


def shell_script(source: Path) -> tuple[Any, dict[str, Any]]:
    """A job with a separate model. Its requirements file has a name of its own and installs a wheel from the source."""
    arguments = {
        "entry_point": "together.sh",
        "source_dir": str(source),
        "model_uri": f"file://{source.parent}/weights",
    }
    return Estimator, {
        **arguments,
        "metric_definitions": [{"Name": "loss", "Regex": "loss = ([0-9.]+)"}],
        "environment": {"SAGEMAKER_REQUIREMENTS": "gpu.txt"},
    }


def with_dependencies(source: Path) -> tuple[Any, dict[str, Any]]:
    """Source and dependencies are uploaded to S3: local mode ignores dependencies if it mounts the source."""
    arguments = {
        "entry_point": "uses_library.py",
        "source_dir": str(source / "dependent"),
        "dependencies": [str(source.parent / "library")],
    }
    return PyTorch, {**arguments, "output_path": None}


def run_qa(hosts: int, **arguments: Any) -> Job:
    """A job of the generic estimator with only an image."""
    return lambda _: (Estimator, {"instance_count": hosts, "hyperparameters": job["hyperparameters"] | arguments})


def framework(estimator: Any) -> dict[str, Job]:
    """Each distribution of the estimators PyTorch and HuggingFace."""
    torchrun, ddp = {"torch_distributed": {"enabled": True}}, {"pytorchddp": {"enabled": True}}
    smddp = {"smdistributed": {"dataparallel": {"enabled": True}}}
    jobs = {
        "no distribution, two hosts": program(estimator, hosts=2),
        "mpi of two on two hosts": program(estimator, hosts=2, distribution=mpi(2), hyperparameters=VALUES),
        "smdistributed.dataparallel, two hosts": program(
            estimator, hosts=2, distribution=smddp, instance_type=AS_ON_GPUS
        ),
        "torch_distributed, two hosts": program(estimator, hosts=2, distribution=torchrun),
        "pytorchddp of two": program(estimator, distribution=ddp, instance_type=AS_ON_GPUS, environment=TWO_RANKS),
    }
    return {f"{estimator.__name__}, {name}": job for name, job in jobs.items()}


JOBS: dict[str, Job] = {
    "Estimator, image_uri alone": run_qa(1),
    "Estimator, image_uri alone, processes_per_host 2 on two hosts": run_qa(2, processes_per_host=2),
    "Estimator, entry_point .py": program(Estimator),
    "Estimator, entry_point .sh": shell_script,
    "Estimator, BERTH_DISTRIBUTION mpi, two hosts": program(
        Estimator, hosts=2, environment={"BERTH_DISTRIBUTION": "mpi"}
    ),
    **framework(PyTorch),
    "PyTorch, dependencies": with_dependencies,
    "PyTorch, torch_distributed of setup.py, two hosts": program(
        PyTorch,
        folder="packaged",
        hosts=2,
        distribution={"torch_distributed": {"enabled": True}, "parameter_server": {"enabled": False}},
    ),
    **framework(HuggingFace),
    "HuggingFace, smdistributed.dataparallel of git_config": smddp_of_a_repository,
}

TOGETHER = Path(__file__).with_name("together.py").read_text()
SETUP = "from setuptools import setup\nsetup(name='of-the-job', version='7', py_modules=['together'])\n"
WHEEL = "of_the_job-7-py3-none-any.whl"


def write_sources(work: Path) -> Path:
    """Makes the folder of the jobs' programs, and next to it the git repository."""
    source = work / "source"
    for name, text in {
        "together.py": TOGETHER,
        "together.sh": "set -e\ncat $SM_CHANNEL_MODEL/weights.txt\npython together.py $@\n",
        "gpu.txt": f"./{WHEEL}\n",
        "dependent/uses_library.py": "import library\nassert library.OWN == 'mine'\nimport together\n",
        "dependent/together.py": TOGETHER,
        "dependent/requirements.txt": f"./{WHEEL}\n",
        "../library/__init__.py": "OWN = 'mine'\n",
        "packaged/together.py": TOGETHER,
        "packaged/setup.py": SETUP,
        "../weights/weights.txt": "these are weights\n",
    }.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    with zipfile.ZipFile(source / WHEEL, "w") as wheel:
        wheel.writestr("of_the_job-7.dist-info/METADATA", "Metadata-Version: 2.1\nName: of-the-job\nVersion: 7\n")
        wheel.writestr("of_the_job-7.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("of_the_job-7.dist-info/RECORD", "")
    shutil.copy(source / WHEEL, source / "dependent")
    make_repository(work, {"together.py": TOGETHER})
    return source


def make_estimator(name: str, source: Path) -> Any:
    """The estimator of a job, with the arguments that all jobs share."""
    estimator, arguments = JOBS[name](source)
    in_s3 = "output_path" in arguments
    session = LocalSession(boto3.Session(region_name="us-east-1"), BUCKET, job["s3"] if in_s3 else None)
    session.config = {"local": {"local_code": not in_s3, "container_root": tempfile.mkdtemp(dir=job["work"])}}
    everywhere = {
        "image_uri": job["image_uri"],
        "role": ROLE,
        "instance_count": 1,
        "instance_type": "local",
        "sagemaker_session": session,
        "output_path": f"file://{tempfile.mkdtemp(dir=job['work'])}",
        "py_version": "py311" if estimator is HuggingFace else None,
    }
    made = estimator(**{key: value for key, value in (everywhere | arguments).items() if value is not None})
    made.instance_type = "local"
    return made


def s3() -> Any:
    return boto3.client("s3", endpoint_url=job["s3"])


def result_files(estimator: Any) -> list[Any]:
    """The files that a job's ranks wrote into its model; for run_qa the metrics."""
    archive = estimator.model_data
    if archive.startswith("s3://"):
        bucket, _, key = archive.removeprefix("s3://").partition("/")
        body = io.BytesIO(s3().get_object(Bucket=bucket, Key=key)["Body"].read())
    else:
        body = io.BytesIO(Path(archive.removeprefix("file://")).read_bytes())
    with tarfile.open(fileobj=body) as tar:
        files = [tar.extractfile(member) for member in tar if "seen-" in member.name or "metrics.json" in member.name]
        return [json.load(file) for file in files if file is not None]


def run(name: str, source: Path) -> dict[str, Any]:
    """Runs one job from `fit` to the model; `error` is the SDK's error."""
    log = io.StringIO()
    began = time.monotonic()
    result: dict[str, Any] = {"seen": []}
    try:
        with contextlib.redirect_stdout(log):
            estimator = make_estimator(name, source)
            result["metrics"] = estimator.metric_definitions
            channels = {} if estimator.entry_point else job["data"]
            estimator.fit({channel: f"file://{folder}" for channel, folder in channels.items()} or None)
        result["seen"] = result_files(estimator)
    except Exception as error:  # the next job must run in any case
        result["error"] = f"{type(error).__name__}: {error}"
    return result | {"seconds": round(time.monotonic() - began, 1), "log": log.getvalue()}


if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    work = Path(job["work"])
    os.environ.update(git_environment(work))
    s3().create_bucket(Bucket=BUCKET)
    with only_the_result() as end:
        source = write_sources(work)
        end({name: run(name, source) for name in job["jobs"]})
