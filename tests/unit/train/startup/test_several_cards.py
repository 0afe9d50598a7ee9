"""Hosts with two network cards in one subnet, in network namespaces: they must use the address that the job names."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from berth.train.hosts import ssh
from berth.train.hosts.rendezvous import Introduction
from tests.unit.train.entries import START, lay_out

pytestmark = pytest.mark.slow

# Only root may create network namespaces. CI runs as root.
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")

SUBNET = "10.77.0"
LEADER = {"eth0": f"{SUBNET}.1", "eth1": f"{SUBNET}.11"}
WORKER = {"eth0": f"{SUBNET}.2", "eth1": f"{SUBNET}.12"}
LEADS = f"""
from queue import SimpleQueue
from berth.contract.errors import JobError
from berth.train.hosts.rendezvous import Leader
leader = Leader("{LEADER["eth1"]}", ("algo-2",), SimpleQueue(), resolve=lambda host: {{"{WORKER["eth1"]}"}})
print("listening", flush=True)
try:
    leader.gather(8)
except JobError as error:
    print(error)
for connection in leader.connections.values():
    print("met", connection.address, "at", connection.own_address)
leader.close()
"""
JOINS = f"""
import sys
from queue import SimpleQueue
from berth.contract.errors import JobError
from berth.train.hosts.rendezvous import Introduction, join
events = SimpleQueue()
try:
    join("{LEADER["eth1"]}", Introduction("algo-2", 1), events, 0.5, interface=sys.argv[1])
    events.get()  # until the leader hangs up
except JobError as error:
    print(error)
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture(scope="module")
def namespaces() -> Iterator[tuple[str, str]]:
    """Two hosts on one switch, each with the cards eth0 and eth1 in the same subnet."""
    switch, *hosts = (f"berth-{os.getpid()}-{name}" for name in ("switch", "leader", "worker"))
    with contextlib.ExitStack() as stack:
        for name in (switch, *hosts):
            ip("netns", "add", name)
            stack.callback(ip, "netns", "delete", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for host, cards in zip(hosts, (LEADER, WORKER), strict=True):
            for card, address in cards.items():
                port = f"{host[-6:]}-{card}"
                ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", card, "netns", host)
                ip("-n", switch, "link", "set", port, "master", "bridge", "up")
                ip("-n", host, "address", "add", f"{address}/24", "dev", card)
                ip("-n", host, "link", "set", card, "up")
        yield hosts[0], hosts[1]


def meet(namespaces: tuple[str, str], interface: str) -> tuple[str, str]:
    """The output of leader and worker; for the leader algo-2 resolves to the worker's eth1."""
    leader, worker = [["ip", "netns", "exec", name, sys.executable, "-P", "-c"] for name in namespaces]
    with subprocess.Popen([*leader, LEADS], stdout=subprocess.PIPE, text=True) as leads:
        assert leads.stdout.readline() == "listening\n"
        joins = subprocess.run([*worker, JOINS, interface], capture_output=True, text=True, timeout=30)
        return leads.communicate(timeout=30)[0], joins.stdout + joins.stderr


@needs_root
def test_worker_connects_from_interface_of_job(namespaces: tuple[str, str]) -> None:
    """Without an interface the kernel uses the first card in the subnet, whose address the leader does not know."""
    leader_output, worker_output = meet(namespaces, "")
    refusal = f"algo-2 resolves to {WORKER['eth1']} here, not to {WORKER['eth0']}"
    assert refusal in worker_output
    assert "algo-2 did not join" in leader_output
    leader_output, worker_output = meet(namespaces, "eth1")
    assert f"met {WORKER['eth1']} at {LEADER['eth1']}" in leader_output
    assert "could not reach" not in worker_output


@needs_root
def test_job_uses_interface_of_resourceconfig(namespaces: tuple[str, str], tmp_path: Path) -> None:
    hosts = [LEADER["eth1"], WORKER["eth1"]]
    started = []
    for name, host in zip(namespaces, hosts, strict=True):
        root = lay_out(tmp_path, host, hosts)
        resources = {"hosts": hosts, "current_host": host, "network_interface_name": "eth1"}
        (root / "input/config/resourceconfig.json").write_text(json.dumps(resources))
        command = [
            "ip",
            "netns",
            "exec",
            name,
            sys.executable,
            "-P",
            "-c",
            START,
            root,
            tmp_path / f"run-{host}",
            "7717",
        ]
        environ = {**os.environ, "SAGEMAKER_BASE_DIR": str(root), "BERTH_RENDEZVOUS_TIMEOUT": "20"}
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        started.append(subprocess.Popen(command, env=environ, text=True, **output))  # type: ignore[call-overload]
    texts = [process.communicate(timeout=60)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], texts
    assert f"rendezvous: {WORKER['eth1']} has joined" in texts[0]


def test_ssh_of_mpirun_binds_address_known_to_worker() -> None:
    connection = SimpleNamespace(address=WORKER["eth1"], own_address=LEADER["eth1"])
    leader = SimpleNamespace(
        introductions={"algo-2": Introduction("algo-2", 1, "key", 2222)}, connections={"algo-2": connection}
    )
    config = ssh.client_config(Path("/k"), leader)  # type: ignore[arg-type]
    for line in (f"HostName {WORKER['eth1']}", f"BindAddress {LEADER['eth1']}", "Port 2222"):
        assert f"  {line}\n" in config


@needs_root
@pytest.mark.nightly
def test_error_names_interface_without_address(namespaces: tuple[str, str]) -> None:
    ip("-n", namespaces[1], "link", "add", "eth2", "type", "veth", "peer", "name", "eth3")
    _, worker_output = meet(namespaces, "eth2")
    assert "(the interface eth2 has no address from which to reach " in worker_output
