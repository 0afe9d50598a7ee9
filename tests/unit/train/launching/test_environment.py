"""The environment of a host's programs and of each rank."""

import json
from pathlib import Path
from typing import Any

import pytest

from berth.contract.errors import JobError
from berth.runtime.rank import Rank
from berth.train.launching.environment import (
    framework_parameters,
    host_environment,
    rank_environment,
    sagemaker_variables,
)
from berth.train.launching.runfolder import RunFolder
from berth.train.planning.hardware import Hardware
from berth.train.planning.job import Job, read_job
from tests.unit.train.launching.wrapped import program

CPU = Hardware(gpus=0, cuda=None, cpus=2, shm=None, interfaces=("lo",))


def test_sagemaker_variables_describe_this_host_without_files(tmp_path: Path) -> None:
    hardware = Hardware(gpus=2, cuda="13.0", cpus=1, shm=None, interfaces=())
    resources = {"hosts": ["algo-1", "algo-2"], "current_host": "algo-2"}
    hyperparameters = {"sagemaker_job_name": '"123"', "sagemaker_region": '"eu-west-1"', "epochs": "3"}
    config = tmp_path / "input/config"
    config.mkdir(parents=True)
    (config / "resourceconfig.json").write_text(json.dumps(resources))
    (config / "hyperparameters.json").write_text(json.dumps(hyperparameters))
    job = read_job(tmp_path, {})
    (config / "resourceconfig.json").unlink()
    variables = sagemaker_variables(job, hardware)
    expected = {
        "SM_CURRENT_HOST": "algo-2",
        "SM_HOSTS": '["algo-1","algo-2"]',
        "SM_NUM_GPUS": "2",
        "SM_NUM_CPUS": "1",
        "SM_HP_EPOCHS": "3",
        "CURRENT_HOST": "algo-2",
        "SAGEMAKER_JOB_NAME": "123",
        "SAGEMAKER_REGION": "eu-west-1",
    }
    assert {name: variables[name] for name in expected} == expected
    described = json.loads(variables["SM_TRAINING_ENV"])
    assert (described["current_host"], described["num_gpus"], described["num_cpus"]) == ("algo-2", 2, 1)
    assert json.loads(variables["SM_RESOURCE_CONFIG"]) == resources


@pytest.mark.parametrize(
    ("program_name", "backend", "path", "parameters"),
    [
        ("train.py", "gloo", "/opt/ml/code:/mine", {}),
        ("train.py", "smddp", "/opt/ml/code:/mine", {"sagemaker_distributed_dataparallel_enabled": True}),
        (None, "smddp", "/mine", {}),
    ],
    ids=["user program", "user program with SMDDP", "run_qa starts its group itself"],
)
def test_host_environment(program_name: str | None, backend: str, path: str, parameters: dict[str, bool]) -> None:
    resources = {"hosts": ["algo-1", "algo-2"], "current_host": "algo-2"}
    job = Job(Path("/opt/ml"), "algo-2", ("algo-1", "algo-2"), None, {}, {}, resources, program_name)
    planned = {"MASTER_PORT": "29500", "SM_CURRENT_HOST": "from the plan"}
    environ = {
        "A": "1",
        "MASTER_PORT": "from the container",
        "PYTHONPATH": "/mine",
        "CURRENT_HOST": "from the container",
    }
    environment = host_environment(job, CPU, backend, planned, environ)
    assert (environment["A"], environment["MASTER_PORT"], environment["SM_CURRENT_HOST"]) == (
        "1",
        "29500",
        "from the plan",
    )
    assert (environment["CURRENT_HOST"], environment["SAGEMAKER_JOB_NAME"]) == ("algo-2", "")
    assert environment["PYTHONPATH"] == path
    assert json.loads(environment["SM_FRAMEWORK_PARAMS"]) == parameters


def test_rank_environment(tmp_path: Path) -> None:
    rank_program = program(RunFolder(tmp_path / "run"), environment={"A": "1", "PMIX_RANK": "old"}, world_size=2)
    environ = {"OMPI_X": "2", "PMIX_RANK": "1", "OPAL_PREFIX": "/v", "HOME": "/leader"}
    environ |= dict.fromkeys(("SM_CURRENT_HOST", "SM_RESOURCE_CONFIG", "SM_TRAINING_ENV"), "from the leader")
    assert rank_environment(
        rank_program, Rank(1, 0, 2, 1), environ, {"BERTH_FAILURE_FILE": Path("/run/berth/why")}
    ) == {
        "A": "1",
        "BERTH_FAILURE_FILE": "/run/berth/why",
        "OMPI_X": "2",
        "PMIX_RANK": "1",
        "OPAL_PREFIX": "/v",
        "LD_LIBRARY_PATH": "/v/lib",
        "RANK": "1",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "1",
    }


def test_rank_with_smddp_gets_the_librarys_local_rank_variable(tmp_path: Path) -> None:
    for backend, number in (("smddp", "1"), ("nccl", None)):
        rank_program = program(RunFolder(tmp_path / "run"), environment={"BERTH_BACKEND": backend}, world_size=16)
        assert rank_environment(rank_program, Rank(9, 1, 16, 8), {}, {}).get("SMDATAPARALLEL_LOCAL_RANK") == number


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, Rank()),
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, Rank(3, 1, 4, 2)),
        ({"RANK": "0", "WORLD_SIZE": "1"}, Rank()),
    ],
)
def test_rank_from_environment(environment: dict[str, str], rank: Rank) -> None:
    assert Rank.from_environment(environment) == rank


@pytest.mark.parametrize("environment", [{"RANK": "4", "WORLD_SIZE": "4"}, {"WORLD_SIZE": "2"}])
def test_contradictory_rank_variables_are_refused(environment: dict[str, str]) -> None:
    with pytest.raises(JobError, match="don't go together"):
        Rank.from_environment(environment)


SENT = json.dumps({"sagemaker_distributed_dataparallel_enabled": True, "sagemaker_instance_type": "ml.p5.48xlarge"})


@pytest.mark.parametrize(
    ("sent", "libraries", "expected"),
    [
        (SENT, {"smddp": False, "model_parallel": False}, {"sagemaker_instance_type": "ml.p5.48xlarge"}),
        ("", {"smddp": True, "model_parallel": False}, {"sagemaker_distributed_dataparallel_enabled": True}),
        ("", {"smddp": False, "model_parallel": False}, {}),
        ("", {"smddp": False, "model_parallel": True}, {"sagemaker_mpi_enabled": True}),
    ],
)
def test_library_is_named_only_if_it_is_used(sent: str, libraries: dict[str, bool], expected: dict[str, Any]) -> None:
    assert json.loads(framework_parameters(sent, **libraries)) == expected
