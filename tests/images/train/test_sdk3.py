"""The hooks for SDK v3's MPI driver: with a double of the driver in two containers, and without it."""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.models.containers import Container

from bench.jobs.containers import started_hosts
from tests.images.train.conftest import IMAGE

DRIVER = Path(__file__).parents[2] / "doubles" / "mpi_driver_double.py"
DRIVER_PATH = "/opt/ml/input/data/sm_drivers/distributed_drivers/mpi_driver.py"
RANK = r"""
import json, os, sys
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "SM_CURRENT_HOST", "GREETING", "NCCL_SOCKET_IFNAME")
values = [*(os.environ.get(name) for name in names), len(os.sched_getaffinity(0))]
sys.stdout.write("FOUND " + json.dumps(values) + "\n")  # one write, because --tag-output splits lines between writes
"""
GREETING = "good # \"morning\" to 'all'\nof you"
HOSTS = ("algo-1", "algo-2")

Driven = Callable[..., AbstractContextManager[dict[str, Container]]]


@pytest.fixture
def driven(client: docker.DockerClient, tmp_path: Path) -> Driven:
    """`with driven(present=…, VARIABLE=…) as containers`: runs the driver on hosts during the block."""
    (tmp_path / "rank.py").write_text(RANK)

    @contextmanager
    def start(present: tuple[str, ...] = HOSTS, **environment: str) -> Iterator[dict[str, Container]]:
        def options(host: str) -> dict[str, Any]:
            variables = {"SM_CURRENT_HOST": host, "SM_MASTER_ADDR": "algo-1", "SM_MASTER_PORT": "7777"}
            return {
                # In a job, process 1 is a shell script.
                "command": [f"python3 {DRIVER_PATH} /opt/ml/input/data/code/rank.py; exit $?"],
                "entrypoint": ["bash", "-c"],
                "volumes": [f"{DRIVER}:{DRIVER_PATH}:ro", f"{tmp_path / 'rank.py'}:/opt/ml/input/data/code/rank.py:ro"],
                "environment": variables
                | {"SM_HOSTS": json.dumps(HOSTS), "SM_NETWORK_INTERFACE_NAME": "ethwe", **environment},
            }

        with started_hosts(client, IMAGE, present, options) as containers:
            yield containers

    return start


def test_driver_starts_every_rank_on_two_hosts(driven: Driven) -> None:
    with driven(GREETING=GREETING) as containers:
        codes = {host: container.wait(timeout=120)["StatusCode"] for host, container in containers.items()}
        log = containers["algo-1"].logs().decode()
    assert codes == {"algo-1": 0, "algo-2": 0}
    printed = [json.loads(text) for text in re.findall(r"FOUND (\[.*\])", log)]
    expected = [[str(rank), str(rank % 2), "4", "algo-1", HOSTS[rank // 2], GREETING, "eth0"] for rank in range(4)]
    first, second = printed[:4], printed[4:]
    for ranks, cores in ((first, len(os.sched_getaffinity(0))), (second, 1)):
        assert sorted(ranks) == [[*rank, cores] for rank in expected], log
    changed = re.findall(r"berth: mpirun: changed for SDK v3's driver: (.*)", log)
    assert len(changed) == 2
    assert changed[0].startswith("-np 4 instead of 2, the ranks of all hosts; the interface eth0 instead of ethwe")
    assert "yes/no" not in log


def test_driver_fails_with_name_of_missing_host(driven: Driven) -> None:
    with driven(present=("algo-1",), BERTH_RENDEZVOUS_TIMEOUT="2") as containers:
        container = containers["algo-1"]
        assert container.wait(timeout=60)["StatusCode"] not in (0, None)
        log = container.logs().decode()
        stream, _ = container.get_archive("/opt/ml/output/failure")
        failure = b"".join(stream).decode()
    sentence = "host algo-2 did not join the leader algo-1 within 2 s"
    assert f"berth: failed: {sentence}" in log
    assert sentence in failure
    assert "Traceback" not in log


def test_hooks_run_the_real_programs_without_the_driver(train: Any) -> None:
    """Here the driver's channel exists, but the caller is not the driver."""
    train.check_output(f"mkdir -p {Path(DRIVER_PATH).parent}")
    options = "--allow-run-as-root --oversubscribe -np 1"
    printed = train.check_output(f"timeout 60 mpirun {options} printenv")
    assert "OMPI_COMM_WORLD_SIZE=1" in printed
    assert "hwloc_base_binding_policy" not in printed
    assert "berth:" not in printed
    real, hook = (train.run(f"{path} -V") for path in ("/usr/sbin/sshd.distrib", "/usr/sbin/sshd"))
    assert "OpenSSH" in hook.stderr
    assert (hook.rc, hook.stdout, hook.stderr) == (real.rc, real.stdout, real.stderr)
    train.check_output("rm -r /opt/ml/input/data/sm_drivers")
