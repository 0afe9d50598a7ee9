"""The hook `mpirun`: what becomes of the line that SDK v3's driver calls, in local mode and on the service."""

import shlex

import pytest

from berth.train.environment import Rank
from berth.train.plan import choose_interface
from berth.train.sdk3.mpirun import DriverCall, correct
from berth.train.sdk3.rank import rank_variables

# As mpi_driver.py of sagemaker-train 1.27 writes it.
LINE = (
    "--host {hosts} -np {ranks} --allow-run-as-root --tag-output -mca btl_tcp_if_include {interface}"
    " -mca oob_tcp_if_include {interface} -mca plm_rsh_no_tree_spawn 1 -mca pml ob1 -mca btl ^openib"
    " -mca orte_abort_on_non_zero_status 1 -mca btl_vader_single_copy_mechanism none"
    " -mca plm_rsh_num_concurrent {count}"
    " -x NCCL_SOCKET_IFNAME={interface} -x LD_LIBRARY_PATH -x PATH{more} {program}"
)
PROGRAM = "/opt/berth/bin/python3 -m mpi4py train.py --text 'two words' --mca a_if_include=ethwe"
WRAPPED = f"/opt/berth/bin/python3 -P -m berth.train.sdk3.rank {PROGRAM}"


def line(hosts: str, ranks: int, interface: str, more: str = "", program: str = PROGRAM) -> list[str]:
    count = hosts.count(",") + 1
    return shlex.split(
        LINE.format(hosts=hosts, ranks=ranks, interface=interface, more=more, program=program, count=count)
    )


def corrected(arguments: list[str], named: str = "ethwe") -> DriverCall:
    return correct(arguments, "/opt/berth", named, choose_interface(named, ["eth0", "lo"], alone=False))


INTERFACE = "the interface eth0 in place of ethwe, which is not here"


@pytest.mark.parametrize(
    ("hosts", "driver", "ranks", "changes"),
    [
        ("algo-1", 1, 1, [INTERFACE]),
        ("algo-1:2", 2, 2, [INTERFACE]),
        ("algo-1,algo-2", 1, 2, ["-np 2 in place of 1, for all hosts are meant", INTERFACE]),
        ("algo-1:8,algo-10:8,algo-2:8", 8, 24, ["-np 24 in place of 8, for all hosts are meant", INTERFACE]),
    ],
)
def test_the_drivers_line_starts_every_rank_over_an_interface_that_is_there(
    hosts: str, driver: int, ranks: int, changes: list[str]
) -> None:
    call = corrected(line(hosts, driver, "ethwe"))
    assert list(call.arguments) == ["--prefix", "/opt/berth", *line(hosts, ranks, "eth0", program=WRAPPED)]
    assert list(call.changes) == changes


def test_an_interface_that_is_there_stays() -> None:
    call = corrected(line("algo-1,algo-2", 1, "eth0"), named="eth0")
    assert list(call.arguments) == ["--prefix", "/opt/berth", *line("algo-1,algo-2", 2, "eth0", program=WRAPPED)]
    assert len(call.changes) == 1


@pytest.mark.parametrize(
    "more", [" --bind-to core", " -np 4", " -x NCCL_SOCKET_IFNAME=eth", " -mca btl_tcp_if_include 10.0.0.0/8", " -v"]
)
def test_what_the_user_adds_stays(more: str) -> None:
    """A second -np goes before the first, as Open MPI 4.1 reads them."""
    call = corrected(line("algo-1:2", 2, "ethwe", more))
    assert list(call.arguments) == ["--prefix", "/opt/berth", *line("algo-1:2", 2, "eth0", more, WRAPPED)]


def test_a_prefix_of_the_users_stays() -> None:
    call = corrected(line("algo-1:2", 2, "eth0", " --prefix /opt/mine"), named="eth0")
    assert list(call.arguments) == line("algo-1:2", 2, "eth0", " --prefix /opt/mine", WRAPPED)
    assert call.changes == ()


@pytest.mark.parametrize(
    "text",
    ["--version", "", "-m mpi4py train.py", "-np 2 python -m mpi4py train.py", "--host a -np 1 prterun-of-tomorrow"],
)
def test_a_line_that_is_not_the_drivers_stays_whole(text: str) -> None:
    assert corrected(shlex.split(text)) == DriverCall(tuple(shlex.split(text)))


MPIRUN = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "SM_MASTER_ADDR": "algo-1",
    "SM_MASTER_PORT": "7777",
    "SM_NETWORK_INTERFACE_NAME": "ethwe",
}
RANK = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}
MEETING = {
    "MASTER_ADDR": "algo-1",
    "MASTER_PORT": "7777",
    "GLOO_SOCKET_IFNAME": "eth0",
    "OMP_NUM_THREADS": "8",
}


@pytest.mark.parametrize(
    ("set_by_user", "expected"),
    [
        ({}, MEETING),
        ({"RANK": "0"}, MEETING),
        ({"MASTER_PORT": "1234", "OMP_NUM_THREADS": "1"}, MEETING | {"MASTER_PORT": "1234", "OMP_NUM_THREADS": "1"}),
        ({"GLOO_SOCKET_IFNAME": "eth1"}, MEETING | {"GLOO_SOCKET_IFNAME": "eth1"}),
    ],
)
def test_a_rank_gets_what_torch_reads(set_by_user: dict[str, str], expected: dict[str, str]) -> None:
    found = rank_variables(MPIRUN | set_by_user, ["eth0", "lo"], 16)
    assert found == RANK | expected
    assert Rank.from_environment(found) == Rank(3, 1, 4, 2)
