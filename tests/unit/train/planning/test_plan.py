"""Launch plans: the whole text in the log, the parts that single settings change, and whole plans for hardware of
SageMaker's instance types. berth itself never looks at the type's name.
"""

import re
import shlex
from dataclasses import replace

import pytest

from berth.contract.launch_options import read_launch_options
from berth.train.planning.efa import Fabric
from berth.train.planning.hardware import Hardware
from berth.train.planning.job import Job
from berth.train.planning.plan import needs_ssh
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
    "keys of the platform": (
        "train.py",
        {
            "sagemaker_job_name": '"1"',
            "_tuning_objective_metric": "f1",
            "lr": "3e-05",
            "name": '"bert"',
            "dir": "plain text",
        },
        {},
        "process",
        ("/v/bin/python", "train.py", "--dir", "plain text", "--lr", "3e-05", "--name", "bert"),
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


def test_secrets_in_custom_mpi_options_are_masked() -> None:
    options = "-x WANDB_API_KEY=abc --mca mca_base_env_list 'HF_TOKEN=abc;A=b;HOME'"
    training_job = job(program="train.py", sagemaker_mpi_enabled="true", sagemaker_mpi_custom_mpi_options=options)
    plan = plan_of(training_job, CPU, {"BERTH_LOG_LEVEL": "debug"})
    assert (plan.environment["WANDB_API_KEY"], plan.environment["HF_TOKEN"]) == ("abc", "abc")
    assert plan.environment["A"] == "b"
    assert "mca_base_env_list" not in plan.command
    assert "WANDB_API_KEY ***" in plan.render("algo-1")
    assert "abc" not in plan.render("algo-1")


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
