"""Stands in for SDK v3's MPI driver in a job, and makes the same calls of sshd, paramiko, ssh and mpirun.

Usage: python mpi_driver.py PROGRAM, with the SM_* variables that the driver has. The leader runs PROGRAM under mpirun,
two ranks on each host, once as the driver would, and once with `--bind-to core` among the user's own options.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import paramiko

HOST, LEADER, HOSTS = os.environ["SM_CURRENT_HOST"], os.environ["SM_MASTER_ADDR"], json.loads(os.environ["SM_HOSTS"])
WORKERS = [host for host in HOSTS if host != LEADER]
DONE = Path("/tmp/done.algo-1")


class RefuseUnknown(paramiko.client.MissingHostKeyPolicy):
    """Refuses unknown host keys; the driver's own policy accepts any key of a host called algo-…."""

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        raise paramiko.SSHException(f"no key of {hostname} is known")


def connects(host: str) -> bool:
    try:
        with paramiko.SSHClient() as client:
            client.load_system_host_keys()
            client.set_missing_host_key_policy(RefuseUnknown())
            client.connect(host, port=22)
            return True
    except Exception as error:
        print(f"can't connect to {host}: {error}")
        return False


def wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the driver gave up")
        time.sleep(0.5)


def touch(host: str, path: Path) -> None:
    subprocess.run(["ssh", host, "touch", str(path)], check=True)


def mpirun(*more: str) -> None:
    hosts = ",".join(f"{host}:2" for host in HOSTS)
    line = ["--host", hosts, "-np", "2", "--allow-run-as-root", "--tag-output"]
    for name in ("btl_tcp_if_include", "oob_tcp_if_include"):
        line += ["-mca", name, "ethwe"]
    line += ["-mca", "plm_rsh_no_tree_spawn", "1", "-x", "NCCL_SOCKET_IFNAME=ethwe", "-x", "PATH", *more]
    subprocess.run(["mpirun", *line, sys.executable, "-m", "mpi4py", sys.argv[1]], check=True)


subprocess.Popen(["/usr/sbin/sshd", "-D"])
if HOST == LEADER:
    wait(lambda: all(connects(worker) and Path(f"/tmp/ready.{worker}").exists() for worker in WORKERS))
    mpirun()
    mpirun("--bind-to", "core")
    for worker in WORKERS:
        touch(worker, DONE)
else:
    wait(lambda: connects(LEADER))
    touch(LEADER, Path(f"/tmp/ready.{HOST}"))
    wait(DONE.exists)
