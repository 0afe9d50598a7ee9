"""The owner of a run: the process that started it, and whether it is still alive.

Every container, network and scratch folder of a run names its owner. A process that was killed with SIGKILL can't clean
up; the next call notices that the owner is gone, and cleans up.
"""

import contextlib
import hashlib
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from docker import DockerClient

from berth.common import labels

# The boot ID is the fallback: container images often have no machine ID.
MACHINE_ID_FILES = (Path("/etc/machine-id"), Path("/proc/sys/kernel/random/boot_id"))


@dataclass(frozen=True, slots=True)
class Owner:
    """A process: its ID, its start time (opaque text, may be empty) and the machine on which both are valid."""

    pid: int
    started: str
    machine: str

    def labels(self, run_id: str) -> dict[str, str]:
        """The labels of everything that this owner makes for this run."""
        return {
            labels.KIT: "run",
            labels.RUN: run_id,
            labels.PID: str(self.pid),
            labels.STARTED: self.started,
            labels.MACHINE: self.machine,
        }


def this_process() -> Owner:
    """This process as an owner."""
    return Owner(os.getpid(), _start_time(os.getpid()), _machine())


def from_labels(item_labels: Mapping[str, str]) -> Owner | None:
    """The owner in the labels of a container, a network or a scratch folder; None if they name none."""
    pid, started, machine = (
        item_labels.get(labels.PID),
        item_labels.get(labels.STARTED),
        item_labels.get(labels.MACHINE),
    )
    if pid is None or not pid.isdecimal() or int(pid) == 0 or started is None or machine is None:
        return None
    return Owner(int(pid), started, machine)


def is_gone(owner: Owner) -> bool:
    """Whether the owner's process has ended. False for an owner on another machine, whose processes can't be seen."""
    if owner.machine != _machine():
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return _start_time(owner.pid) != owner.started


def left_behind(client: DockerClient) -> list[tuple[str, str]]:
    """The containers and networks whose owner is gone, such as "network berth-20261122-191051-c89ce5", each with the ID
    of its run.
    """
    containers = client.containers.list(all=True, filters={"label": labels.RUN}, ignore_removed=True)
    items: list[tuple[str, Mapping[str, str]]] = [(f"container {each.name}", each.labels) for each in containers]
    networks = client.networks.list(filters={"label": labels.RUN})
    items += [(f"network {each.name}", each.attrs.get("Labels") or {}) for each in networks]
    owners = [(name, item_labels.get(labels.RUN, ""), from_labels(item_labels)) for name, item_labels in items]
    return [(name, run_id) for name, run_id, run_owner in owners if run_owner is not None and is_gone(run_owner)]


def _machine() -> str:
    """The machine and the process namespace: a container that uses the same engine has its own process IDs.

    Not the host's name, which machines may share, and not the namespace alone: the initial one has the same number on
    every Linux.
    """
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = "-"
    return f"{_machine_id(MACHINE_ID_FILES)} {namespace}"


def _machine_id(files: Sequence[Path]) -> str:
    """The machine's ID, hashed because machine-id(5) asks not to publish it; else the host's name."""
    for file in files:
        with contextlib.suppress(OSError):
            found = file.read_text().strip()
            if found and found != "uninitialized":
                return hashlib.sha256(f"berth {found}".encode()).hexdigest()[:32]
    return socket.gethostname()


def _start_time(pid: int) -> str:
    """The boot ID and field 22 of /proc/PID/stat; empty without /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    # The command's name, in parentheses, may contain spaces and parentheses.
    return f"{boot}/{stat.rpartition(')')[2].split()[19]}"
