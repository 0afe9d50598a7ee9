"""SDK v2's estimators in local mode with a user's programs: one job per launcher and number of hosts.

tests/unit/train/test_requests.py tests the launch plans of all other requests; `make clients` runs more jobs.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.local_mode import sdk
from tests.local_mode.conftest import remove_what_the_sdk_left
from tests.local_mode.moto_here import moto_server
from tests.local_mode.test_sdk_v2 import TRAIN

SHELL = "Estimator, entry_point .sh"
DEPENDENCIES = "PyTorch, dependencies"
MPI = "PyTorch, mpi of two on two hosts"
PACKAGE = "PyTorch, torch_distributed of setup.py, two hosts"
SMDDP = "HuggingFace, smdistributed.dataparallel of git_config"


@pytest.fixture(scope="module")
def jobs(client: docker.DockerClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """All jobs, run by one process: the SDK's import takes seconds."""
    work = tmp_path_factory.mktemp("jobs")
    names = [SHELL, DEPENDENCIES, MPI, PACKAGE, SMDDP]
    with moto_server() as s3:
        request = json.dumps({"image_uri": TRAIN, "work": str(work), "jobs": names, "s3": s3})
        try:
            yield sdk.run(Path(__file__).with_name("jobs_v2.py"), request, version=2, work=work)[0]
        finally:
            remove_what_the_sdk_left(client, work)


def ended_well(result: Any) -> Any:
    """A job's result; prints its log, which pytest shows after a failure."""
    print(result["log"])
    assert "error" not in result, result["error"]
    return result


def test_shell_script_with_model_and_named_requirements(jobs: Any) -> None:
    job = ended_well(jobs[SHELL])
    (seen,) = job["seen"]
    assert (seen["ranks"], seen["rank"], seen["package"], seen["channels"]) == (1, "none", "7", ["SM_CHANNEL_MODEL"])
    assert "these are weights" in job["log"]
    (metric,) = job["metrics"]
    assert re.findall(metric["Regex"], job["log"]) == ["0.5"]


def test_dependencies_and_requirements_are_fetched_from_s3(jobs: Any) -> None:
    job = ended_well(jobs[DEPENDENCIES])
    (seen,) = job["seen"]
    assert (seen["ranks"], seen["package"]) == (1, "7")


def test_mpi_on_two_hosts_forms_one_group_of_four_ranks(jobs: Any) -> None:
    job = ended_well(jobs[MPI])
    assert [seen["ranks"] for seen in job["seen"]] == [4] * 4
    assert {seen["rank"] for seen in job["seen"]} == set("0123")
    assert sorted(Counter(seen["host"] for seen in job["seen"]).values()) == [2, 2]
    for seen in job["seen"]:
        assert seen["host_of_training_env"] == seen["host"]
        assert seen["nccl_debug"] == "VERSION"
        assert " ".join(seen["argv"]) == (
            '--encoded "bert" --list [1, 2] --name bert --none  --rate 3e-05 --yes True'  # as sagemaker-training does
        )
    assert len({seen["job"] for seen in job["seen"]} - {""}) == 1


def test_folder_with_setup_py_is_installed_and_run_as_a_module(jobs: Any) -> None:
    job = ended_well(jobs[PACKAGE])
    assert [(seen["ranks"], seen["package"], seen["module"]) for seen in job["seen"]] == [(2, "7", True)] * 2
    assert len({seen["host"] for seen in job["seen"]}) == 2


def test_smdistributed_distribution_forms_one_group_without_the_library(jobs: Any) -> None:
    job = ended_well(jobs[SMDDP])
    assert [(seen["ranks"], seen["nccl_debug"], seen["argv"]) for seen in job["seen"]] == [(2, "VERSION", [])] * 2
    (line,) = (line for line in job["log"].splitlines() if "launch by mpirun: " in line)
    assert " -verbose " in line
    assert "smdistributed dataparallel was asked for but can't be used" in job["log"]
