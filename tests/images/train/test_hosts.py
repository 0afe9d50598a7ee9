"""Hosts with the same host name, network interfaces that the user excludes, and an sshd with many connections."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Excerpt


@pytest.mark.nightly
@pytest.mark.transformers5
def test_hosts_with_the_same_host_name_train_together(
    lone_hosts: Callable[..., Any],
    channels: Callable[..., dict[str, Path]],
    tiny_model: Path,
    excerpt: Excerpt,
    unexpected_lines: Callable[..., list[str]],
    tmp_path: Path,
) -> None:
    """On SageMaker every host's own host name is `aws`; only the network knows algo-1 and algo-2."""
    data = channels(train=excerpt("train", 16)) | {"model": tiny_model}
    hyperparameters = {"do_train": "True", "max_steps": "2", "per_device_train_batch_size": "4"}
    with lone_hosts(data, hyperparameters, hostname="aws") as containers:
        codes = {host: container.wait(timeout=180)["StatusCode"] for host, container in containers.items()}
        logs = {host: container.logs().decode() for host, container in containers.items()}
    assert codes == {"algo-1": 0, "algo-2": 0}
    assert "weights: the same on all 2 ranks" in logs["algo-1"]
    assert json.loads((tmp_path / "algo-1/model/metrics.json").read_text())["world_size"] == 2
    assert not list((tmp_path / "algo-2/model").iterdir()), "only the leader may write the model"
    assert unexpected_lines("\n".join(logs.values())) == []


ADDS_UP = """
import os, torch
import torch.distributed as dist
from mpi4py import MPI
dist.init_process_group(os.environ["BERTH_BACKEND"])
total = torch.ones(1) * dist.get_rank()
dist.all_reduce(total)
print("sums", MPI.COMM_WORLD.allreduce(dist.get_rank()), int(total), os.environ["SM_CURRENT_HOST"], flush=True)
dist.destroy_process_group()
"""


@pytest.mark.nightly
def test_users_excluded_interfaces_replace_the_plans_list(user_job: Callable[..., Any]) -> None:
    """With an include list and an exclude list, mpirun does not start, or hangs."""
    options = "-mca btl_tcp_if_exclude lo,docker0 -x OMPI_MCA_oob_tcp_if_exclude=lo,docker0"
    settings = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_custom_mpi_options": options}
    ran = user_job({"train.py": ADDS_UP}, "train.py", settings, hosts=4)
    assert ran.outcome.exit_code == 0, ran.log
    for host in ("algo-1", "algo-2", "algo-3", "algo-4"):
        assert [line for line in ran.lines_of(host) if line.startswith("sums")] == [f"sums 6 6 {host}"]
    assert "so mpirun does not get the plan's btl_tcp_if_include eth0" in ran.log
    assert "so mpirun does not get the plan's oob_tcp_if_include eth0" in ran.log


SSHD = """
import json, shutil, socket, subprocess, sys, time
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace
from berth.train.hosts import ssh
from berth.train.hosts.rendezvous import Introduction

leader, worker = Path(mkdtemp()), Path(mkdtemp())
server = ssh.SshServer(worker)
server.start()
introductions = {"algo-2": Introduction("algo-2", 1, server.host_key, server.port)}
loopback = SimpleNamespace(address="127.0.0.1", own_address="127.0.0.1")
rendezvous = SimpleNamespace(introductions=introductions, connections={"algo-2": loopback})
server.allow(ssh.write_client_files(leader, rendezvous), "127.0.0.1")
client = ["-F", str(leader / "ssh_config")]
mpirun = shutil.which("mpirun")
launch = [mpirun, "--allow-run-as-root", "--prefix", str(Path(mpirun).parent.parent), "--host", "algo-2:2", "-np", "2"]
for name, value in {"plm_rsh_agent": "ssh", "plm_rsh_args": " ".join(client), "oob_tcp_if_include": "lo"}.items():
    launch += ["--mca", name, value]
connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(60)]
time.sleep(1)
codes = [subprocess.run(["ssh", *client, "algo-2", "true"]).returncode for _ in range(10)]
launched = subprocess.run([*launch, "echo", "rank"], capture_output=True, text=True)
output, err = launched.stdout.split(), launched.stderr
print(json.dumps({"ssh": codes, "mpirun": launched.returncode, "output": output, "err": err}))
server.stop()
"""


def test_sshd_accepts_mpirun_beside_sixty_open_connections(train: Any) -> None:
    """With its default limits, sshd would reject every second connection."""
    result = train.run("python -P -c %s", SSHD)
    report = json.loads(result.stdout.splitlines()[-1])
    assert report["ssh"] == [0] * 10, result.stderr
    assert (report["mpirun"], report["output"]) == (0, ["rank", "rank"]), report["err"]
