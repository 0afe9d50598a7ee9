"""Launch plans for hardware of SageMaker's instance types. berth itself never looks at the type's name."""

import shlex

import pytest

from berth.train.planning.efa import Fabric
from berth.train.planning.hardware import Hardware
from berth.train.planning.plan import Plan
from tests.unit.train.planning.plans import job, plan_of

RANK = "/v/bin/python -P -m berth.train.launching.rank /run/berth"
P4D = Hardware(gpus=8, cuda="13.0", cpus=96, shm=576 << 30, interfaces=("eth0", "eth1", "eth2", "eth3", "lo"))
G4DN = Hardware(gpus=4, cuda="13.0", cpus=48, shm=96 << 30, interfaces=("eth0", "lo"))


def plan(hardware: Hardware, hosts: int, efa: int) -> Plan:
    devices = tuple(f"rdmap{number}s0" for number in range(efa))
    return plan_of(job(hosts), hardware, fabric=Fabric(built=True, plugin="libnccl-net.so", devices=devices))


def test_plan_for_two_p4d() -> None:
    launch_plan = plan(P4D, hosts=2, efa=4)
    assert (
        launch_plan.render("algo-1")
        == """\
launch plan
  program: run_qa, the kit's own
  hosts: 2: algo-1 leads, then algo-2
  ranks: 8 on each host, 16 in all, by mpirun
  backend: nccl, over eth0: 8 GPUs on each host
  because: 8 processes per host: one for each GPU
  because: network: NCCL over EFA: 4 devices, plugin libnccl-net.so"""
    )
    assert shlex.join(launch_plan.command) == (
        "/v/bin/mpirun --allow-run-as-root --prefix /v --host algo-1:8,algo-2:8 -np 16 --wdir / --bind-to none --mca "
        "orte_abort_on_non_zero_status 1 --mca btl_vader_single_copy_mechanism none --mca oob_tcp_if_include eth0 "
        "--mca btl_tcp_if_include eth0 --mca plm_rsh_agent ssh --mca plm_rsh_args '-F /k/ssh_config' --mca "
        f"plm_rsh_no_tree_spawn 1 {RANK}"
    )
    # Variables of older guides, such as FI_EFA_USE_DEVICE_RDMA and NCCL_PROTO, must not be set any more.
    assert launch_plan.environment == {
        "BERTH_BACKEND": "nccl",
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_SOCKET_IFNAME": "eth0",
        "MASTER_ADDR": "algo-1",
        "MASTER_PORT": "29500",
        "OMP_NUM_THREADS": "12",
        "PYTHONUNBUFFERED": "1",
    }


def test_plan_for_one_g4dn() -> None:
    launch_plan = plan(G4DN, hosts=1, efa=0)
    assert (
        launch_plan.render("algo-1")
        == """\
launch plan
  program: run_qa, the kit's own
  hosts: 1: algo-1
  ranks: 4 on each host, 4 in all, by mpirun
  backend: nccl, over lo: 4 GPUs on each host
  because: 4 processes per host: one for each GPU"""
    )
    assert shlex.join(launch_plan.command) == (
        "/v/bin/mpirun --allow-run-as-root --prefix /v --host localhost:4 -np 4 --wdir / --bind-to none --mca "
        "orte_abort_on_non_zero_status 1 --mca btl_vader_single_copy_mechanism none --mca oob_tcp_if_include lo --mca "
        f"btl_tcp_if_include lo {RANK}"
    )
    assert launch_plan.environment == {
        "BERTH_BACKEND": "nccl",
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
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
