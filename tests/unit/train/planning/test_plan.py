"""Launch plans: the whole text in the log, the parts that single settings change, and whole plans for hardware of
SageMaker's instance types. berth itself never looks at the type's name.
"""

import re
import shlex
from dataclasses import replace

import pytest

from berth.contract.errors import JobError
from berth.contract.launch_options import read_launch_options
from berth.train.planning.efa import Fabric
from berth.train.planning.hardware import Hardware
from berth.train.planning.job import Job
from berth.train.planning.mpirun import Launcher
from berth.train.planning.plan import Plan, needs_ssh
from tests.unit.train.planning.plans import CPU, GPU8, job, plan_of

RANK = "/v/bin/python -P -m berth.train.launching.rank /run/berth"


PLANS = {
    "run_qa on one CPU host": (
        job(),
        CPU,
        {},
        """\
launch plan
  program: run_qa, the kit's own
  hosts: 1: algo-1
  ranks: 1 on each host, 1 in all, by mpirun
  backend: gloo, over lo: no GPU that torch can use
  because: 1 process per host: no GPU, and processes_per_host is not set""",
    ),
    "run_qa on two CPU hosts, two processes each": (
        job(("algo-1-x", "algo-2-x"), interface="ethwe", processes_per_host='"2"'),
        CPU,
        {},
        """\
launch plan
  program: run_qa, the kit's own
  hosts: 2: algo-1-x leads, then algo-2-x
  ranks: 2 on each host, 4 in all, by mpirun
  backend: gloo, over eth0: no GPU that torch can use
  because: 2 processes per host: processes_per_host says so
  because: interface eth0: this host does not have ethwe, which resourceconfig.json names""",
    ),
    "run_qa on two hosts of eight GPUs": (
        job(("algo-1", "algo-2"), interface="eth1"),
        GPU8,
        {"OMP_NUM_THREADS": "3"},
        """\
launch plan
  program: run_qa, the kit's own
  hosts: 2: algo-1 leads, then algo-2
  ranks: 8 on each host, 16 in all, by mpirun
  backend: nccl, over eth1: 8 GPUs on each host
  because: 8 processes per host: one for each GPU""",
    ),
    "user program with idle GPUs, little shared memory and a secret": (
        job(program="train.py", epochs="3", model='"bert"', hub_token="abc", sagemaker_region='"eu-west-1"'),
        Hardware(gpus=8, cuda="13.0", cpus=8, shm=64 << 20, interfaces=("eth0", "lo")),
        {},
        """\
7 of 8 GPUs may stay idle, because your program runs once per host unless a distribution is asked for: give the \
estimator environment={"BERTH_DISTRIBUTION": "mpi"} to run it once per GPU, or a PyTorch or HuggingFace estimator \
distribution={"mpi": {"enabled": True, "processes_per_host": 8}}
launch plan
  program: train.py, your own: /v/bin/python train.py --epochs 3 --hub_token '***' --model bert
  hosts: 1: algo-1
  ranks: none, the program runs once
  backend: nccl, over lo: 8 GPUs on each host
  because: your own program runs once per host unless a distribution is asked for
  because: /dev/shm has only 64 MiB: data loader workers and NCCL use it, and the program crashes with a bus error if \
it is full; give the container more (docker run --shm-size, or shm_size in the local session's container_config), or \
set dataloader_num_workers to 0""",
    ),
    "user program with mpi and custom options, at log level debug": (
        job(
            program="train.py",
            sagemaker_mpi_enabled="true",
            sagemaker_mpi_num_of_processes_per_host="2",
            sagemaker_mpi_custom_mpi_options='"-mca btl_tcp_if_include eth9 -x A=b --NCCL_DEBUG=WARN -verbose -x HOME"',
        ),
        CPU,
        {"BERTH_LOG_LEVEL": "debug"},
        """\
launch plan
  program: train.py, your own: /v/bin/python -m mpi4py train.py
  hosts: 1: algo-1
  ranks: 2 on each host, 2 in all, by mpirun
  backend: gloo, over lo: no GPU that torch can use
  because: mpirun: distribution mpi was asked for; 2 processes per host: sagemaker_mpi_num_of_processes_per_host says so
  because: your custom MPI options set btl_tcp_if_include, so mpirun does not get the plan's btl_tcp_if_include lo
  each rank: /v/bin/python -m mpi4py train.py
  settings: A ***, ACCELERATE_USE_CPU true, BERTH_BACKEND gloo, GLOO_SOCKET_IFNAME lo, MASTER_ADDR 127.0.0.1, \
MASTER_PORT 29500, NCCL_DEBUG WARN, OMP_NUM_THREADS 2, PYTHONUNBUFFERED 1
  launch by mpirun: /v/bin/mpirun --allow-run-as-root --prefix /v --host localhost:2 -np 2 --wdir / \
--bind-to none --mca orte_abort_on_non_zero_status 1 --mca btl_vader_single_copy_mechanism none \
--mca oob_tcp_if_include lo \
-mca btl_tcp_if_include eth9 -verbose """
        + RANK,
    ),
    "user program on six hosts, independently": (
        job(6, program="train.py"),
        CPU,
        {},
        """\
launch plan
  program: train.py, your own: /v/bin/python train.py
  hosts: 6: algo-1 leads, then algo-2, algo-3, algo-4, algo-5, algo-6
  ranks: none, the program runs once on each host, independently
  backend: gloo, over eth0: no GPU that torch can use
  because: your own program runs once per host unless a distribution is asked for: 6 independent trainings, whose \
/opt/ml/model all go into one model.tar.gz: if several hosts write a file of the same name, only one is kept, so save \
the model on one host (the first of SM_HOSTS); or set BERTH_DISTRIBUTION to mpi for one training on all""",
    ),
}


@pytest.mark.parametrize(("training_job", "hardware", "environ", "text"), PLANS.values(), ids=PLANS.keys())
def test_render_on_the_leader(training_job: Job, hardware: Hardware, environ: dict[str, str], text: str) -> None:
    assert plan_of(training_job, hardware, environ).render(training_job.hosts[0]) == text


def test_render_on_a_worker_is_one_line() -> None:
    plan = plan_of(job(("algo-1", "algo-2"), interface="eth1"), GPU8, {"BERTH_LOG_LEVEL": "debug"})
    assert plan.render("algo-2") == (
        "launch plan: ranks 8 on each host, 16 in all, by mpirun; backend nccl, over eth1: 8 GPUs on each host; "
        "see the log of algo-1 for the whole plan"
    )


@pytest.mark.parametrize(
    ("hardware", "environ", "network"),
    [
        (CPU, {}, "gloo, over eth0: "),
        (CPU, {"GLOO_SOCKET_IFNAME": "eth1"}, "gloo, over eth1 (set by GLOO_SOCKET_IFNAME): "),
        (CPU, {"NCCL_SOCKET_IFNAME": "eth1"}, "gloo, over eth0: "),
        (GPU8, {"NCCL_SOCKET_IFNAME": "^docker0"}, "nccl, over ^docker0 (set by NCCL_SOCKET_IFNAME): "),
    ],
)
def test_plan_names_the_users_interface(hardware: Hardware, environ: dict[str, str], network: str) -> None:
    plan = plan_of(job(("algo-1", "algo-2"), program="train.py"), hardware, environ)
    assert f"\n  backend: {network}" in plan.render("algo-1")
    assert not [name for name in environ if plan.environment.get(name, environ[name]) != environ[name]]


def test_plan_warns_about_interface_list_for_gloo() -> None:
    environ = {"GLOO_SOCKET_IFNAME": "^docker0"}
    last = [plan_of(job(program="train.py"), hardware, environ).reasons[-1] for hardware in (CPU, GPU8)]
    warning = "GLOO_SOCKET_IFNAME is ^docker0, but gloo accepts only names"
    assert [line.startswith(warning) for line in last] == [True, False]


@pytest.mark.parametrize(
    ("program", "hardware", "environ", "value"),
    [
        ("train.py", CPU, {}, "true"),
        ("train.py", CPU, {"BERTH_DISTRIBUTION": "mpi"}, "true"),
        ("train.py", CPU, {"ACCELERATE_USE_CPU": "false"}, "false"),
        ("train.py", Hardware(2, None, 4, None, ("lo",)), {}, "true"),
        ("train.py", GPU8, {"BERTH_DISTRIBUTION": "mpi"}, None),
        (None, CPU, {}, None),
    ],
    ids=["once per host", "mpi", "set by the user", "GPUs but a CPU torch", "GPUs", "run_qa sets use_cpu itself"],
)
def test_accelerate_use_cpu(
    program: str | None, hardware: Hardware, environ: dict[str, str], value: str | None
) -> None:
    plan = plan_of(job(program=program), hardware, environ)
    assert plan.environment.get("ACCELERATE_USE_CPU") == value


COMMANDS = {
    "plain": ("train.py", {}, {}, "process", ("/v/bin/python", "train.py")),
    "environment mpi": (
        "train.py",
        {},
        {"BERTH_DISTRIBUTION": "mpi"},
        "mpirun",
        ("/v/bin/python", "-m", "mpi4py", "train.py"),
    ),
    "environment none overrides the estimator": (
        "train.py",
        {"sagemaker_mpi_enabled": "true"},
        {"BERTH_DISTRIBUTION": "none"},
        "process",
        ("/v/bin/python", "train.py"),
    ),
    "torch_distributed": (
        "train.py",
        {"sagemaker_torch_distributed_enabled": "true"},
        {},
        "mpirun",
        ("/v/bin/python", "train.py"),
    ),
    "smddp": (
        "train.py",
        {"sagemaker_distributed_dataparallel_enabled": "true"},
        {},
        "mpirun",
        ("/v/bin/python", "-m", "mpi4py", "train.py"),
    ),
    "mpi false": ("train.py", {"sagemaker_mpi_enabled": "false"}, {}, "process", ("/v/bin/python", "train.py")),
    "one-letter, list, dict, none": (
        "train.py",
        {"b": "4", "ll": "[1, 2]", "dd": '{"a": 1}', "nn": "null", "flag": "true"},
        {},
        "process",
        ("/v/bin/python", "train.py", "-b", "4", "--dd", "a=1", "--flag", "True", "--ll", "[1, 2]", "--nn", ""),
    ),
    "shell script": ("bin/train.sh", {"epochs": "1"}, {}, "process", ("bash", "bin/train.sh", "--epochs", "1")),
}


@pytest.mark.parametrize(
    ("program", "hyperparameters", "environ", "kind", "command"), COMMANDS.values(), ids=COMMANDS.keys()
)
def test_command_of_user_program(
    program: str, hyperparameters: dict[str, str], environ: dict[str, str], kind: str, command: tuple[str, ...]
) -> None:
    plan = plan_of(job(program=program, **hyperparameters), CPU, environ)
    assert (plan.kind, plan.program, plan.shell) == (kind, command, program.endswith(".sh"))


@pytest.mark.parametrize(
    ("hosts", "program", "environ", "needed"),
    [
        (1, None, {}, False),
        (2, None, {}, True),
        (2, "train.py", {}, False),
        (2, "train.py", {"BERTH_DISTRIBUTION": "mpi"}, True),
        (1, "train.py", {"BERTH_DISTRIBUTION": "mpi"}, False),
    ],
)
def test_needs_ssh_only_if_mpirun_starts_ranks_on_other_hosts(
    hosts: int, program: str | None, environ: dict[str, str], needed: bool
) -> None:
    training_job = job(hosts, program=program)
    assert needs_ssh(training_job, read_launch_options({}, program, environ)) is needed


def test_hyperparameter_processes_per_host_is_passed_to_user_program() -> None:
    plan = plan_of(job(program="train.py", processes_per_host="many", sagemaker_mpi_enabled="true"), CPU, {})
    assert plan.ranks_per_host == 1
    assert plan.reasons == (
        "the hyperparameter processes_per_host is passed to your program: to set the number of ranks per host, set "
        "BERTH_DISTRIBUTION to mpi and BERTH_PROCESSES_PER_HOST to that number",
        "mpirun: distribution mpi was asked for; 1 process per host: no GPU, and neither distribution nor "
        "BERTH_PROCESSES_PER_HOST says how many",
    )


def test_trace_has_no_effect_on_user_program() -> None:
    environ = {"BERTH_TRACE": "10-12"}
    sentence = "BERTH_TRACE has no effect on your own program: it traces run_qa's steps only"
    assert sentence in plan_of(job(program="train.py"), CPU, environ).reasons
    assert sentence not in plan_of(job(), CPU, environ).reasons


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


def test_plan_names_gpus_that_a_cpu_torch_cannot_use() -> None:
    plan = plan_of(job(), Hardware(2, None, 4, None, ("lo",)), {})
    assert (plan.backend, plan.ranks_per_host) == ("gloo", 1)
    assert "this host has 2 GPUs but this image's torch is a CPU build: use an image of a CUDA profile" in plan.reasons


def test_secrets_in_custom_mpi_options_are_masked() -> None:
    options = "-x WANDB_API_KEY=abc --mca mca_base_env_list 'HF_TOKEN=abc;A=b;HOME'"
    training_job = job(program="train.py", sagemaker_mpi_enabled="true", sagemaker_mpi_custom_mpi_options=options)
    plan = plan_of(training_job, CPU, {"BERTH_LOG_LEVEL": "debug"})
    assert (plan.environment["WANDB_API_KEY"], plan.environment["HF_TOKEN"]) == ("abc", "abc")
    assert plan.environment["A"] == "b"
    assert "mca_base_env_list" not in plan.command
    assert "WANDB_API_KEY ***" in plan.render("algo-1")
    assert "abc" not in plan.render("algo-1")


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
    def plan(program: str | None, version: str) -> Plan:
        return plan_of(job(program=program), hardware, transformers=version)

    with pytest.raises(JobError) as error:
        plan(None, "4.26.0")
    assert str(error.value) == (
        "run_qa, the kit's own program, is for transformers 5 and this image has 4.26.0: train with an image of the "
        f"profile {profile}, or give a program of your own (entry_point of an estimator, --code of `build.py run "
        "train`, the hyperparameter sagemaker_program)."
    )
    assert plan("train.py", "4.26.0").name == "train.py"
    assert plan(None, "5.23.0").is_run_qa


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


def test_plan_matches_no_metric_expression() -> None:
    """SageMaker would take the matched text of the log for a metric."""
    expressions = [
        r"train_runtime.*=\D*(.*?)$",
        r"train_samples_per_second.*=\D*(.*?)$",
        r"epoch.*=\D*(.*?)$",
        r"f1.*=\D*(.*?)$",
    ]
    environ = {"BERTH_LOG_LEVEL": "debug"}
    gpus = Hardware(gpus=8, cuda="13.0", cpus=8, shm=None, interfaces=("eth0", "lo"))
    training_job = job(program="train.py", num_train_epochs="3", x='{"epoch": 1}')
    lines = [
        line for host in (CPU, gpus) for line in plan_of(training_job, host, environ).render("algo-1").splitlines()
    ]
    assert not [line for line in lines for expression in expressions if re.search(expression, line)]


@pytest.mark.parametrize(
    ("name", "hyperparameters", "command"),
    [
        ("train.py", {"epochs": "3"}, "/v/bin/python -m train --epochs 3"),
        ("sub/train.py", {}, "/v/bin/python -m sub.train"),
        ("train.py", {"sagemaker_mpi_enabled": "true"}, "/v/bin/python -m mpi4py -m train"),
    ],
)
def test_module_program(name: str, hyperparameters: dict[str, str], command: str) -> None:
    assert shlex.join(plan_of(job(program=name, **hyperparameters), CPU, {}).module_program) == command


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["HF_MODEL_ID", "HF_TASK"], "HF_MODEL_ID and HF_TASK have no effect in a training job: name the model "),
        (["HF_TASK"], "HF_TASK has no effect in a training job: name the model with the hyperparameter "),
        (["CA_REPOSITORY_ARN"], "CA_REPOSITORY_ARN has no effect: set PIP_INDEX_URL to the repository's address"),
    ],
)
def test_plan_names_variables_without_effect(names: list[str], sentence: str) -> None:
    assert plan_of(job(), CPU, dict.fromkeys(names, "x")).reasons[-1].startswith(sentence)


RANK = "/v/bin/python -P -m berth.train.launching.rank /run/berth"
P4D = Hardware(gpus=8, cuda="13.0", cpus=96, shm=576 << 30, interfaces=("eth0", "eth1", "eth2", "eth3", "lo"))
G4DN = Hardware(gpus=4, cuda="13.0", cpus=48, shm=96 << 30, interfaces=("eth0", "lo"))


EFA = Fabric(built=True, plugin="libnccl-net.so", devices=tuple(f"rdmap{number}s0" for number in range(4)))
INSTANCES = {
    "two p4d": (
        job(2),
        P4D,
        EFA,
        """\
launch plan
  program: run_qa, the kit's own
  hosts: 2: algo-1 leads, then algo-2
  ranks: 8 on each host, 16 in all, by mpirun
  backend: nccl, over eth0: 8 GPUs on each host
  because: 8 processes per host: one for each GPU
  because: network: NCCL over EFA: 4 devices, plugin libnccl-net.so""",
        "/v/bin/mpirun --allow-run-as-root --prefix /v --host algo-1:8,algo-2:8 -np 16 --wdir / --bind-to none --mca "
        "orte_abort_on_non_zero_status 1 --mca btl_vader_single_copy_mechanism none --mca oob_tcp_if_include eth0 "
        "--mca btl_tcp_if_include eth0 --mca plm_rsh_agent ssh --mca plm_rsh_args '-F /k/ssh_config' --mca "
        f"plm_rsh_no_tree_spawn 1 {RANK}",
        {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0", "MASTER_ADDR": "algo-1"},
    ),
    "one g4dn": (
        job(),
        G4DN,
        replace(EFA, devices=()),
        """\
launch plan
  program: run_qa, the kit's own
  hosts: 1: algo-1
  ranks: 4 on each host, 4 in all, by mpirun
  backend: nccl, over lo: 4 GPUs on each host
  because: 4 processes per host: one for each GPU""",
        "/v/bin/mpirun --allow-run-as-root --prefix /v --host localhost:4 -np 4 --wdir / --bind-to none --mca "
        "orte_abort_on_non_zero_status 1 --mca btl_vader_single_copy_mechanism none --mca oob_tcp_if_include lo --mca "
        f"btl_tcp_if_include lo {RANK}",
        {"GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1"},
    ),
}


@pytest.mark.parametrize(
    ("training_job", "hardware", "fabric", "text", "command", "variables"), INSTANCES.values(), ids=INSTANCES.keys()
)
def test_plan_for_instance_type(
    training_job: Job, hardware: Hardware, fabric: Fabric, text: str, command: str, variables: dict[str, str]
) -> None:
    plan = plan_of(training_job, hardware, fabric=fabric)
    assert plan.render("algo-1") == text
    assert shlex.join(plan.command) == command
    # Variables of older guides, such as FI_EFA_USE_DEVICE_RDMA and NCCL_PROTO, must not be set any more.
    assert plan.environment == variables | {
        "BERTH_BACKEND": "nccl",
        "MASTER_PORT": "29500",
        "OMP_NUM_THREADS": "12",
        "PYTHONUNBUFFERED": "1",
    }


@pytest.mark.parametrize("gpus", [4, 8])
def test_plan_warns_about_dockers_default_shared_memory(gpus: int) -> None:
    hardware = Hardware(gpus, "13.0", 48, 64 << 20, ("eth0", "lo"))
    plan = plan_of(job(), hardware)
    (reason,) = (each for each in plan.reasons if "/dev/shm" in each)
    assert reason.startswith("/dev/shm has only 64 MiB: NCCL needs about 10 MiB of it for each connection")
    assert f"between the {gpus} GPUs" in reason
    assert "docker run --shm-size" in reason
