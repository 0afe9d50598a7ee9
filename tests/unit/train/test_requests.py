"""Launch plans for recorded requests of the SDKs."""

from pathlib import Path

import pytest

from tests.unit.train import launch_table
from tests.unit.train.recorded_jobs import HARDWARE, planned, requests

REQUESTS = requests()


@pytest.mark.parametrize("estimator", ["PyTorch", "HuggingFace"])
@pytest.mark.parametrize(
    "way",
    ["mpi, processes_per_host and custom_mpi_options, two hosts", "smdistributed.dataparallel, custom_mpi_options"],
)
def test_custom_mpi_options_reach_mpirun(estimator: str, way: str, tmp_path: Path) -> None:
    plan = planned(REQUESTS[f"v2 {estimator}, {way}"], HARDWARE["8 GPUs"], tmp_path)
    assert "-verbose" in plan.command
    assert "-x" not in plan.command  # each host's environment contains the variable already
    assert plan.environment["NCCL_DEBUG"] == "VERSION"


def test_launch_table_is_up_to_date() -> None:
    page = launch_table.PAGE.read_text()
    assert page == launch_table.page_with(launch_table.table()), "run python -m tests.unit.train.launch_table"
