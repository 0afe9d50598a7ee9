"""Launch plans for the hosts that SageMaker has, by what a probe would find there: the kit itself never sees a name."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from berth.contract.launch_options import LaunchOptions
from berth.train.efa import Fabric
from berth.train.hardware import Hardware
from berth.train.job import Job
from berth.train.mpirun import Launcher
from berth.train.plan import HostFindings, Plan, make_plan

LAUNCHER = Launcher("/v/bin/python", "/v/bin/mpirun", 4, "/run/berth", "/k/ssh_config")
RANK = "/v/bin/python -P -m berth.train.rank /run/berth"


@dataclass(frozen=True)
class Instance:
    """What a probe finds: GPUs, CPUs, memory in GiB, EFA devices, network interfaces, and the image's CUDA."""

    gpus: int
    cpus: int
    memory: int
    efa: int
    cuda: str = "13.0"
    interfaces: tuple[str, ...] = ("eth0", "lo")


INSTANCES = {
    "p3.16xlarge": Instance(gpus=8, cpus=64, memory=488, efa=0, cuda="12.4"),
    "g4dn.12xlarge": Instance(gpus=4, cpus=48, memory=192, efa=0),
    "g5.48xlarge": Instance(gpus=8, cpus=192, memory=768, efa=1),
    "g6.12xlarge": Instance(gpus=4, cpus=48, memory=192, efa=0),
    "p4d.24xlarge": Instance(gpus=8, cpus=96, memory=1152, efa=4, interfaces=("eth0", "eth1", "eth2", "eth3", "lo")),
    "p5.48xlarge": Instance(gpus=8, cpus=192, memory=2048, efa=32),
    "p5e.48xlarge": Instance(gpus=8, cpus=192, memory=2048, efa=32),
    "p5en.48xlarge": Instance(gpus=8, cpus=192, memory=2048, efa=16),
    "p6-b200.48xlarge": Instance(gpus=8, cpus=192, memory=2048, efa=8),
}


def plan(instance: Instance, hosts: int) -> Plan:
    names = tuple(f"algo-{number + 1}" for number in range(hosts))
    hardware = Hardware(
        gpus=instance.gpus,
        cuda=instance.cuda,
        cpus=instance.cpus,
        memory=instance.memory << 30,
        shm=instance.memory << 29,
        interfaces=instance.interfaces,
    )
    devices = tuple(f"rdmap{number}s0" for number in range(instance.efa))
    fabric = Fabric(built=True, plugin="libnccl-net.so", devices=devices, usable=bool(devices))
    job = Job(Path("/opt/ml"), "algo-1", names, "eth0", {}, {}, {})
    return make_plan(job, LaunchOptions(), HostFindings(hardware, LAUNCHER, fabric=fabric), {})


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("name", INSTANCES)
def test_plan(name: str, hosts: int) -> None:
    instance = INSTANCES[name]
    made = plan(instance, hosts)
    ranks, interface = instance.gpus, "eth0" if hosts > 1 else "lo"
    where = ",".join(f"algo-{number + 1}:{ranks}" for number in range(hosts)) if hosts > 1 else f"localhost:{ranks}"
    ssh = (
        "--mca plm_rsh_agent ssh --mca plm_rsh_args '-F /k/ssh_config' --mca plm_rsh_no_tree_spawn 1 "
        if hosts > 1
        else ""
    )
    assert (made.kind, made.backend, made.interface) == ("mpirun", "nccl", interface)
    assert (made.ranks_per_host, made.world_size) == (ranks, hosts * ranks)
    assert shlex.join(made.command) == (
        f"/v/bin/mpirun --allow-run-as-root --prefix /v --host {where} -np {hosts * ranks} --wdir / --bind-to none "
        "--mca orte_abort_on_non_zero_status 1 --mca btl_vader_single_copy_mechanism none "
        f"--mca oob_tcp_if_include {interface} --mca btl_tcp_if_include {interface} {ssh}{RANK}"
    )
    environment = {
        "BERTH_BACKEND": "nccl",
        "GLOO_SOCKET_IFNAME": interface,
        "MASTER_ADDR": "algo-1" if hosts > 1 else "127.0.0.1",
        "MASTER_PORT": "29500",
        "OMP_NUM_THREADS": str(instance.cpus // instance.gpus),
        "PYTHONUNBUFFERED": "1",
    }
    assert made.environment == environment | ({"NCCL_SOCKET_IFNAME": "eth0"} if hosts > 1 else {})
    network = [reason for reason in made.reasons if reason.startswith("network: ")]
    if instance.efa:
        count = f"{instance.efa} device{'s' if instance.efa > 1 else ''}"
        way = "NCCL over" if hosts > 1 else "not needed by one host; several would use"
        assert network == [f"network: {way} EFA: {count}, plugin libnccl-net.so"]
    else:
        assert network == (["network: NCCL over TCP: no EFA device is on this host"] if hosts > 1 else [])


def test_two_p4d_in_full() -> None:
    made = plan(INSTANCES["p4d.24xlarge"], 2)
    assert (
        made.render("algo-1")
        == """\
launch plan
  program: run_qa, the kit's own
  hosts: 2: algo-1 leads, then algo-2
  ranks: 8 on each host, 16 in all, by mpirun
  backend: nccl, over eth0: 8 GPUs on each host
  because: 8 processes per host: one for each GPU
  because: network: NCCL over EFA: 4 devices, plugin libnccl-net.so"""
    )
    assert shlex.join(made.command) == (
        "/v/bin/mpirun --allow-run-as-root --prefix /v --host algo-1:8,algo-2:8 -np 16 --wdir / --bind-to none --mca "
        "orte_abort_on_non_zero_status 1 --mca btl_vader_single_copy_mechanism none --mca oob_tcp_if_include eth0 "
        "--mca btl_tcp_if_include eth0 --mca plm_rsh_agent ssh --mca plm_rsh_args '-F /k/ssh_config' --mca "
        f"plm_rsh_no_tree_spawn 1 {RANK}"
    )


def test_one_g4dn_in_full() -> None:
    made = plan(INSTANCES["g4dn.12xlarge"], 1)
    assert (
        made.render("algo-1")
        == """\
launch plan
  program: run_qa, the kit's own
  hosts: 1: algo-1
  ranks: 4 on each host, 4 in all, by mpirun
  backend: nccl, over lo: 4 GPUs on each host
  because: 4 processes per host: one for each GPU"""
    )
    assert shlex.join(made.command) == (
        "/v/bin/mpirun --allow-run-as-root --prefix /v --host localhost:4 -np 4 --wdir / --bind-to none --mca "
        "orte_abort_on_non_zero_status 1 --mca btl_vader_single_copy_mechanism none --mca oob_tcp_if_include lo --mca "
        f"btl_tcp_if_include lo {RANK}"
    )


# github.com/aws/aws-ofi-nccl and GPU.md: what older guides set, and what a current plugin and NCCL must not be told.
OBSOLETE = {
    "FI_PROVIDER",
    "FI_EFA_USE_DEVICE_RDMA",
    "NCCL_PROTO",
    "RDMAV_FORK_SAFE",
    "NCCL_BUFFSIZE",
    "NCCL_MIN_NRINGS",
    "NCCL_IB_DISABLE",
}


@pytest.mark.parametrize("hosts", [1, 2])
@pytest.mark.parametrize("name", INSTANCES)
def test_no_obsolete_variable_is_set(name: str, hosts: int) -> None:
    made = plan(INSTANCES[name], hosts)
    assert not OBSOLETE & set(made.environment)
    assert not [word for word in made.command if word in OBSOLETE]


@pytest.mark.parametrize("name", ["g4dn.12xlarge", "g5.48xlarge"])
def test_dockers_own_64_mib_of_shared_memory_are_named_with_the_flag(name: str) -> None:
    instance = INSTANCES[name]
    hardware = Hardware(instance.gpus, "13.0", 48, None, 64 << 20, ("eth0", "lo"))
    job = Job(Path("/opt/ml"), "algo-1", ("algo-1",), "eth0", {}, {}, {})
    plan = make_plan(job, LaunchOptions(), HostFindings(hardware, LAUNCHER), {})
    (reason,) = (each for each in plan.reasons if "/dev/shm" in each)
    assert reason.startswith(f"/dev/shm has only 64 MiB: NCCL joins {instance.gpus} GPUs through it, with about 10 MiB")
    assert "docker run --shm-size" in reason
