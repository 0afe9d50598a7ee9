"""What becomes of the requests that the SDKs really send: jobs and plans, without an SDK."""

from pathlib import Path

import pytest

from berth.train.plan import Plan
from tests.unit.train import launch_table
from tests.unit.train.recorded_jobs import HARDWARE, planned, requests

CPU, GPUS = HARDWARE.values()
REQUESTS = requests()
OURS = {name: request for name, request in REQUESTS.items() if not request.replaces_the_entry}

RUN_QA, ONCE, MPI, TORCH = "run_qa", "once", "mpi4py", "torch"
REFUSED = "refused"
# What runs, and the ranks of a host without a GPU and of one with eight: exact words are in train/README.md.
EXPECTED = {
    "v2 Estimator": (RUN_QA, 1, 8),
    "v2 Estimator, BERTH_DISTRIBUTION mpi": (MPI, 1, 8),
    "v2 Estimator, BERTH_DISTRIBUTION smddp": (MPI, 1, 8),
    "v2 Estimator, BERTH_PROCESSES_PER_HOST": (MPI, 2, 2),
    "v2 Estimator, SAGEMAKER_PROGRAM": (ONCE, 1, 1),
    "v2 Estimator, ShardedByS3Key": (RUN_QA, 1, 8),
    "v2 Estimator, a tuner's job": (RUN_QA, 1, 8),
    "v2 Estimator, checkpoint_s3_uri on spot": (RUN_QA, 1, 8),
    "v2 Estimator, dependencies": (ONCE, 1, 1),
    "v2 Estimator, distribution": (RUN_QA, 1, 8),
    "v2 Estimator, entry_point .py": (ONCE, 1, 1),
    "v2 Estimator, entry_point .py, distribution": (ONCE, 1, 1),
    "v2 Estimator, entry_point .py, hyperparameters of all kinds": (ONCE, 1, 1),
    "v2 Estimator, entry_point .py, two hosts": (ONCE, 1, 1),
    "v2 Estimator, entry_point .sh": (ONCE, 1, 1),
    "v2 Estimator, hyperparameters of all kinds": (RUN_QA, 1, 8),
    "v2 Estimator, metric_definitions": (RUN_QA, 1, 8),
    "v2 Estimator, model_uri": (RUN_QA, 1, 8),
    "v2 Estimator, network isolation": (ONCE, 1, 1),
    "v2 Estimator, processes_per_host": (RUN_QA, 2, 2),
    "v2 Estimator, source folder with setup.py": (ONCE, 1, 1),
    "v2 PyTorch, SAGEMAKER_REQUIREMENTS": (ONCE, 1, 1),
    "v2 PyTorch, a tuner's job": (ONCE, 1, 1),
    "v2 PyTorch, mpi beside parameter_server off": (MPI, 1, 8),
    "v2 PyTorch, mpi on one of two instance groups": (MPI, REFUSED, REFUSED),
    "v2 PyTorch, mpi that sets -np": (MPI, REFUSED, REFUSED),
    "v2 PyTorch, mpi, more processes than GPUs": (MPI, 9, REFUSED),
    "v2 PyTorch, parameter_server": (ONCE, REFUSED, REFUSED),
    "v2 PyTorch, smdistributed.modelparallel": (MPI, 8, 8),
    "v2 PyTorch, pytorchddp": (MPI, 1, 8),  # the SDK makes smdistributed.dataparallel of it
    "v2 HuggingFace, pytorchddp": (TORCH, 1, 8),
    "v3 ModelTrainer": (RUN_QA, 1, 8),
    "v3 ModelTrainer, hyperparameters of all kinds": (RUN_QA, 1, 8),
    "v3 ModelTrainer, processes_per_host": (RUN_QA, 2, 2),
    "v3 ModelTrainer, two hosts": (RUN_QA, 1, 8),
} | {
    f"v2 {framework}, {way}": expected
    for framework in ("PyTorch", "HuggingFace")
    for way, expected in {
        "git_config": (ONCE, 1, 1),
        "hyperparameters of all kinds": (ONCE, 1, 1),
        "mpi": (MPI, 1, 8),
        "mpi, processes_per_host and custom_mpi_options, two hosts": (MPI, 2, 2),
        "no distribution": (ONCE, 1, 1),
        "no distribution, two hosts": (ONCE, 1, 1),
        "smdistributed.dataparallel": (MPI, 1, 8),
        "smdistributed.dataparallel, custom_mpi_options": (MPI, 1, 8),
        "torch_distributed": (TORCH, 1, 8),
    }.items()
}
WAYS = {RUN_QA: ("-P", "-m", "berth.train.run_qa"), ONCE: (), MPI: ("-m", "mpi4py"), TORCH: ()}


def test_every_request_that_reaches_our_entry_has_its_row() -> None:
    assert EXPECTED.keys() == OURS.keys()


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_what_runs(name: str, tmp_path: Path) -> None:
    way, *ranks = EXPECTED[name]
    for hardware, expected in zip((CPU, GPUS), ranks, strict=True):
        plan = planned(OURS[name], hardware, tmp_path)
        if expected == REFUSED:
            assert isinstance(plan, str), plan
            continue
        assert isinstance(plan, Plan), plan
        assert (plan.kind, plan.ranks_per_host) == ("process" if way == ONCE else "mpirun", expected)
        assert plan.hosts == OURS[name].hosts
        starter = () if plan.shell else WAYS[str(way)]
        program = () if plan.kit else (plan.name,)
        assert plan.program[1 : 1 + len(starter) + len(program)] == (*starter, *program)
        assert plan.program[0] == ("bash" if plan.shell else "python")


ARGUMENTS = {
    # As sagemaker-training 5.1.4 makes them of what framework estimators send: sorted, lists as JSON, None as ''.
    "v2 PyTorch, hyperparameters of all kinds": (
        '--count 3|--dict a=1|--empty |--encoded "bert"|--list [1, 2]|--name bert|--none |--rate 3e-05|'
        '--twice "\\"bert\\""|--yes True'
    ),
    "v2 PyTorch, a tuner's job": "--epochs 1",
}


@pytest.mark.parametrize("name", sorted(ARGUMENTS))
def test_a_programs_arguments(name: str, tmp_path: Path) -> None:
    plan = planned(OURS[name], CPU, tmp_path)
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
    plan = planned(OURS[f"v2 {estimator}, {way}"], GPUS, tmp_path)
    assert isinstance(plan, Plan)
    assert "-verbose" in plan.command
    assert "-x" not in plan.command  # each host has its own environment, and this in it
    assert plan.environment["NCCL_DEBUG"] == "VERSION"


def test_the_launch_table_is_what_the_plan_does() -> None:
    page = launch_table.PAGE.read_text()
    assert page == launch_table.page_with(launch_table.table()), (
        "make it again: python -m tests.unit.train.launch_table"
    )
