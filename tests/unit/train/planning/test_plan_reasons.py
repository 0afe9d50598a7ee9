"""Reasons and warnings in launch plans, and errors of jobs that get no plan."""

from dataclasses import replace

import pytest

from berth.contract.errors import JobError
from berth.train.planning.hardware import Hardware
from berth.train.planning.job import Job
from berth.train.planning.mpirun import Launcher
from tests.unit.train.planning.plans import CPU, GPU8, job, plan_of

REASONS = {
    "list of interfaces for gloo": (
        job(program="train.py"),
        CPU,
        {"GLOO_SOCKET_IFNAME": "^docker0"},
        "GLOO_SOCKET_IFNAME is ^docker0, but gloo accepts only names",
    ),
    "GPUs and a CPU build of torch": (
        job(),
        Hardware(2, None, 4, None, ("lo",)),
        {},
        "this host has 2 GPUs but this image's torch is a CPU build: use an image of a CUDA profile",
    ),
    "hyperparameter that the program gets": (
        job(program="train.py", processes_per_host="many", sagemaker_mpi_enabled="true"),
        CPU,
        {},
        "the hyperparameter processes_per_host is passed to your program: to set the number of ranks per host, set "
        "BERTH_DISTRIBUTION to mpi and BERTH_PROCESSES_PER_HOST to that number",
    ),
    "no number of processes": (
        job(program="train.py", processes_per_host="many", sagemaker_mpi_enabled="true"),
        CPU,
        {},
        "mpirun: distribution mpi was asked for; 1 process per host: no GPU, and neither distribution nor "
        "BERTH_PROCESSES_PER_HOST says how many",
    ),
    "processes without a distribution": (
        job(program="train.py"),
        GPU8,
        {"BERTH_PROCESSES_PER_HOST": "9"},
        "BERTH_PROCESSES_PER_HOST has no effect without a distribution: set BERTH_DISTRIBUTION to mpi as well",
    ),
    "fewer processes than GPUs": (
        job(processes_per_host="2"),
        GPU8,
        {},
        "6 of 8 GPUs stay idle: the job requests 2 processes per host",
    ),
    "trace of a user program": (
        job(program="train.py"),
        CPU,
        {"BERTH_TRACE": "10-12"},
        "BERTH_TRACE has no effect on your own program: it traces run_qa's steps only",
    ),
    "variables of serving": (
        job(),
        CPU,
        {"HF_MODEL_ID": "x", "HF_TASK": "x"},
        "HF_MODEL_ID and HF_TASK have no effect in a training job: name the model ",
    ),
    "variable of serving": (
        job(),
        CPU,
        {"HF_TASK": "x"},
        "HF_TASK has no effect in a training job: name the model with the hyperparameter ",
    ),
    "CodeArtifact": (
        job(),
        CPU,
        {"CA_REPOSITORY_ARN": "x"},
        "CA_REPOSITORY_ARN has no effect: set PIP_INDEX_URL to the repository's address",
    ),
    "Docker's default shared memory": (
        job(),
        Hardware(4, "13.0", 48, 64 << 20, ("eth0", "lo")),
        {},
        "/dev/shm has only 64 MiB: NCCL needs about 10 MiB of it for each connection without NVLink between the 4 GPUs",
    ),
}


@pytest.mark.parametrize(("training_job", "hardware", "environ", "reason"), REASONS.values(), ids=REASONS.keys())
def test_reason(training_job: Job, hardware: Hardware, environ: dict[str, str], reason: str) -> None:
    assert [each for each in plan_of(training_job, hardware, environ).reasons if each.startswith(reason)]


@pytest.mark.parametrize(
    ("hardware", "environ"), [(GPU8, {"GLOO_SOCKET_IFNAME": "^docker0"}), (CPU, {"BERTH_TRACE": "10-12"})]
)
def test_setting_with_effect_is_no_reason(hardware: Hardware, environ: dict[str, str]) -> None:
    assert plan_of(job(), hardware, environ).reasons == plan_of(job(), hardware).reasons


@pytest.mark.parametrize(
    ("hosts", "program", "environ", "warned"),
    [
        (2, "train.py", {"BERTH_DISTRIBUTION": "mpi"}, True),
        (1, "train.py", {"BERTH_DISTRIBUTION": "mpi"}, False),
        (2, "train.py", {}, False),
        (2, None, {}, False),
    ],
    ids=["one training", "one host", "independent trainings", "run_qa checks channels itself"],
)
def test_plan_warns_user_program_about_divided_channels(
    hosts: int, program: str | None, environ: dict[str, str], warned: bool
) -> None:
    kinds = {"train": "ShardedByS3Key", "eval": "FullyReplicated", "odd": None}
    channels = {name: {"S3DistributionType": kind} if kind else "File" for name, kind in kinds.items()}
    plan = plan_of(replace(job(hosts, program=program), input_data=channels), CPU, environ)
    warnings = [reason for reason in plan.reasons if "ShardedByS3Key" in reason]
    assert [reason.partition(" (ShardedByS3Key), but ")[0] for reason in warnings] == (
        ["the files of train are divided among the hosts"] if warned else []
    )


MPI_REQUESTED = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "8"}


@pytest.mark.parametrize(
    ("gpus", "hyperparameters", "environ", "idle"),
    [
        (8, {}, {}, True),
        (1, {}, {}, False),
        (8, {}, {"BERTH_DISTRIBUTION": "none"}, False),
        (8, {}, {"BERTH_DISTRIBUTION": "mpi"}, False),
        (8, MPI_REQUESTED, {}, False),
    ],
    ids=["no distribution", "one GPU", "distribution none", "distribution mpi", "mpi of a PyTorch estimator"],
)
def test_idle_gpus_come_first_unless_a_distribution_is_requested(
    gpus: int, hyperparameters: dict[str, str], environ: dict[str, str], idle: bool
) -> None:
    hardware = Hardware(gpus=gpus, cuda="13.0", cpus=8, shm=None, interfaces=("eth0", "lo"))
    plan = plan_of(job(("algo-1", "algo-2"), program="train.py", **hyperparameters), hardware, environ)
    assert bool(plan.idle_gpus) == idle
    assert plan.ranks_per_host == (1 if idle or "none" in environ.values() else gpus)
    for host in plan.hosts:
        assert plan.render(host).startswith("7 of 8 GPUs may stay idle" if idle else "launch plan")


REFUSED = {
    "mp_parameters": ({"mp_parameters": '{"partitions": 2}'}, {}, "mp_parameters asks for"),
    "smdistributed": ({}, {"BERTH_SMDISTRIBUTED": "on"}, "BERTH_SMDISTRIBUTED must be open, aws or off, not 'on'."),
    "parameter server": ({"sagemaker_parameter_server_enabled": "true"}, {}, "parameter server"),
    "not a number": (
        {"processes_per_host": "two"},
        {},
        "processes_per_host must be a whole number from 1 to 256, not 'two'.",
    ),
    "zero": ({}, {"BERTH_PROCESSES_PER_HOST": "0"}, "BERTH_PROCESSES_PER_HOST must be"),
    "distribution": ({}, {"BERTH_DISTRIBUTION": "mpl"}, "BERTH_DISTRIBUTION must be none, mpi or smddp, not 'mpl'."),
    "misspelt variable": (
        {},
        {"BERTH_DISTRIBUTON": "mpi"},
        "the variable BERTH_DISTRIBUTON is not known: did you mean BERTH_DISTRIBUTION?",
    ),
    "log level": ({}, {"BERTH_LOG_LEVEL": "loud"}, "BERTH_LOG_LEVEL must be info or debug, not 'loud'."),
    "trace from step 0": ({}, {"BERTH_TRACE": "0-2"}, "BERTH_TRACE must be a step from 1 on or a range of 100 steps"),
    "trace backwards": ({}, {"BERTH_TRACE": "12-10"}, "such as 10 or 10-12, not '12-10'."),
    "trace too long": ({}, {"BERTH_TRACE": "1-101"}, "not '1-101'."),
    "trace not a number": ({}, {"BERTH_TRACE": "first"}, "not 'first'."),
    "variable set by the image": (
        {},
        {"BERTH_BACKEND": "gloo"},
        "BERTH_BACKEND is set by the image, for your program to read; remove it from the job.",
    ),
    "variable set by the image, exported by mpirun": (
        {"sagemaker_mpi_custom_mpi_options": "-x BERTH_BACKEND=gloo"},
        {},
        "BERTH_BACKEND is set by the image",
    ),
    "-np": ({"sagemaker_mpi_custom_mpi_options": "-np 7"}, {}, "mpirun's -np is set by the launch plan"),
    "open quote": ({"sagemaker_mpi_custom_mpi_options": "-x 'a"}, {}, "close its quotes"),
    "not a boolean": (
        {"sagemaker_mpi_enabled": "maybe"},
        {},
        "sagemaker_mpi_enabled must be true or false, not 'maybe'.",
    ),
}


@pytest.mark.parametrize(("hyperparameters", "environ", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_setting_is_refused(hyperparameters: dict[str, str], environ: dict[str, str], sentence: str) -> None:
    with pytest.raises(JobError) as error:
        plan_of(job(**hyperparameters), CPU, environ)
    assert sentence in str(error.value)


@pytest.mark.parametrize(("hardware", "profile"), [(CPU, "cpu"), (GPU8, "cu130")])
def test_run_qa_is_refused_with_old_transformers(hardware: Hardware, profile: str) -> None:
    with pytest.raises(JobError) as error:
        plan_of(job(), hardware, transformers="4.26.0")
    assert str(error.value) == (
        "run_qa, the kit's own program, is for transformers 5 and this image has 4.26.0: train with an image of the "
        f"profile {profile}, or give a program of your own (entry_point of an estimator, --code of `build.py run "
        "train`, the hyperparameter sagemaker_program)."
    )
    assert plan_of(job(program="train.py"), hardware, transformers="4.26.0").name == "train.py"
    assert plan_of(job(), hardware, transformers="5.23.0").is_run_qa


def test_distribution_for_one_of_two_instance_groups_is_refused() -> None:
    groups = [
        {"instance_group_name": "gpu", "instance_type": "ml.p4d.24xlarge", "hosts": ["algo-1"]},
        {"instance_group_name": "cpu", "instance_type": "ml.m5.xlarge", "hosts": ["algo-2", "algo-3"]},
    ]
    hosts = ("algo-1", "algo-2", "algo-3")
    mpi = {"sagemaker_mpi_enabled": "true"}
    training_job = replace(
        job(hosts, "train.py", **mpi, sagemaker_distribution_instance_groups='["gpu"]'),
        resources={"instance_groups": groups},
    )
    with pytest.raises(JobError, match="leaves out algo-2, algo-3, but mpirun starts ranks on every host"):
        plan_of(training_job, CPU, {})
    both_groups = {**training_job.hyperparameters, "sagemaker_distribution_instance_groups": '["gpu", "cpu"]'}
    for hyperparameters in (both_groups, mpi, {"sagemaker_distribution_instance_groups": '["gpu"]'}):
        plan_of(replace(training_job, hyperparameters=hyperparameters), CPU, {})


@pytest.mark.parametrize(("major", "sentence"), [(0, "mpirun is not on PATH"), (5, "mpirun is Open MPI 5")])
def test_missing_or_wrong_mpirun_is_refused(major: int, sentence: str) -> None:
    launcher = Launcher("/v/bin/python", "/v/bin/mpirun", major, "/run/berth", "")
    with pytest.raises(JobError, match=sentence):
        plan_of(job(), launcher=launcher)
