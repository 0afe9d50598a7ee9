"""Launch plans for recorded requests of the SDKs."""

from pathlib import Path

import pytest

from berth.train.planning.plan import Plan
from tests.unit.train import launch_table
from tests.unit.train.recorded_jobs import HARDWARE, planned, requests

CPU, GPUS = HARDWARE.values()
REQUESTS = requests()

ARGUMENTS = {
    # The arguments that sagemaker-training 5.1.4 makes: sorted, lists as JSON, None as ''.
    "v2 PyTorch, hyperparameters of all kinds": (
        '--count 3|--dict a=1|--empty |--encoded "bert"|--list [1, 2]|--name bert|--none |--rate 3e-05|'
        '--twice "\\"bert\\""|--yes True'
    ),
    "v2 PyTorch, a tuner's job": "--epochs 1",
}


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_program_arguments(name: str, tmp_path: Path) -> None:
    plan = planned(REQUESTS[name], CPU, tmp_path)
    assert isinstance(plan, Plan)
    words = plan.program[2:]
    assert (
        "|".join(f"{option} {value}" for option, value in zip(words[::2], words[1::2], strict=True)) == ARGUMENTS[name]
    )


@pytest.mark.parametrize("estimator", ["PyTorch", "HuggingFace"])
@pytest.mark.parametrize(
    "way",
    ["mpi, processes_per_host and custom_mpi_options, two hosts", "smdistributed.dataparallel, custom_mpi_options"],
)
def test_custom_mpi_options_reach_mpirun(estimator: str, way: str, tmp_path: Path) -> None:
    plan = planned(REQUESTS[f"v2 {estimator}, {way}"], GPUS, tmp_path)
    assert isinstance(plan, Plan)
    assert "-verbose" in plan.command
    assert "-x" not in plan.command  # each host's environment contains the variable already
    assert plan.environment["NCCL_DEBUG"] == "VERSION"


def test_launch_table_is_up_to_date() -> None:
    page = launch_table.PAGE.read_text()
    assert page == launch_table.page_with(launch_table.table()), "run python -m tests.unit.train.launch_table"
