"""The hook `mpirun` corrects the command line of SDK v3's driver, in local mode and on SageMaker."""

import shlex

import pytest

from berth.runtime.interfaces import choose_interface
from berth.train.sdk3.mpirun import correct

# The line of mpi_driver.py in sagemaker-train 1.27.
LINE = (
    "--host {hosts} -np {ranks} --allow-run-as-root --tag-output -mca btl_tcp_if_include {interface}"
    " -mca oob_tcp_if_include {interface} -mca plm_rsh_no_tree_spawn 1 -mca pml ob1 -mca btl ^openib"
    " -mca orte_abort_on_non_zero_status 1 -mca btl_vader_single_copy_mechanism none"
    " -mca plm_rsh_num_concurrent {count}"
    " -x NCCL_SOCKET_IFNAME={interface} -x LD_LIBRARY_PATH -x PATH{more} {program}"
)
PROGRAM = "/opt/berth/bin/python3 -m mpi4py train.py --text 'two words' --mca a_if_include=ethwe"


INTERFACE = "the interface eth0 instead of ethwe, which this host does not have"
THREADS = "OMP_NUM_THREADS={}"


def line(hosts: str, ranks: int, interface: str, more: str = "") -> list[str]:
    count = hosts.count(",") + 1
    return shlex.split(
        LINE.format(hosts=hosts, ranks=ranks, interface=interface, more=more, program=PROGRAM, count=count)
    )


def expected(hosts: str, ranks: int, threads: int, more: str = "") -> list[str]:
    return ["--prefix", "/opt/berth", *line(hosts, ranks, "eth0", f"{more} -x {THREADS.format(threads)}")]


def corrected(
    arguments: list[str], configured: str = "ethwe", environ: dict[str, str] | None = None
) -> tuple[list[str], list[str]]:
    interface = choose_interface(configured, ["eth0", "lo"], alone=False)
    return correct(
        arguments, prefix="/opt/berth", configured=configured, interface=interface, cpus=16, environ=environ or {}
    )


@pytest.mark.parametrize(
    ("hosts", "driver", "ranks", "threads"),
    [
        ("algo-1", 1, 1, 16),
        ("algo-1:2", 2, 2, 8),
        ("algo-1,algo-2", 1, 2, 16),
        ("algo-1:8,algo-10:8,algo-2:8", 8, 24, 2),
        ("algo-1:32", 32, 32, 1),
    ],
)
def test_corrected_line_starts_all_ranks_over_existing_interface(
    hosts: str, driver: int, ranks: int, threads: int
) -> None:
    arguments, changes = corrected(line(hosts, driver, "ethwe"))
    assert arguments == expected(hosts, ranks, threads)
    several = [f"-np {ranks} instead of {driver}, the ranks of all hosts"] if "," in hosts else []
    assert changes == [*several, INTERFACE, THREADS.format(threads)]


def test_existing_interface_is_kept() -> None:
    arguments, changes = corrected(line("algo-1,algo-2", 1, "eth0"), configured="eth0")
    assert arguments == expected("algo-1,algo-2", 2, 16)
    assert INTERFACE not in changes


@pytest.mark.parametrize(
    "more", [" --bind-to core", " -np 4", " -x NCCL_SOCKET_IFNAME=eth", " -mca btl_tcp_if_include 10.0.0.0/8", " -v"]
)
def test_options_of_user_are_kept(more: str) -> None:
    """The user's options keep their place; of two -np Open MPI 4.1 uses the second."""
    assert corrected(line("algo-1:2", 2, "ethwe", more))[0] == expected("algo-1:2", 2, 8, more)


@pytest.mark.parametrize(
    ("more", "environ"),
    [(" --mca btl_tcp_if_exclude lo", {}), ("", {"OMPI_MCA_btl_tcp_if_exclude": "lo"})],
)
def test_interface_list_that_contradicts_user_is_dropped(more: str, environ: dict[str, str]) -> None:
    arguments, changes = corrected(line("algo-1,algo-2", 1, "eth0", more), "eth0", environ)
    command = shlex.join(arguments)
    assert "btl_tcp_if_include" not in command
    assert "-mca oob_tcp_if_include eth0 -mca plm_rsh_no_tree_spawn 1" in command
    assert "no btl_tcp_if_include, because btl_tcp_if_exclude is set" in changes


def test_prefix_and_threads_of_user_are_kept() -> None:
    arguments = line("algo-1:2", 2, "eth0", " --prefix /opt/mine")
    assert corrected(arguments, "eth0", {"OMP_NUM_THREADS": "4"}) == (arguments, [])
    arguments = line("algo-1:2", 2, "eth0", " --prefix /opt/mine -x OMP_NUM_THREADS=4")
    assert corrected(arguments, "eth0") == (arguments, [])


@pytest.mark.parametrize(
    "text",
    ["--version", "", "-m mpi4py train.py", "-np 2 python -m mpi4py train.py", "--host a -np 1 prterun-of-tomorrow"],
)
def test_other_lines_are_unchanged(text: str) -> None:
    assert corrected(shlex.split(text)) == (shlex.split(text), [])
