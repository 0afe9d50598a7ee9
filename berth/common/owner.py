"""Who owns a run: the process that started it, and whether it still lives.

Every container, network and scratch folder of a run carries its owner. A process that was killed with SIGKILL cleans
nothing up; the next call sees that the owner is gone and does it.
"""

import contextlib
import hashlib
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from berth.common import labels

# The boot's id does where there is no other: a container's image often brings none.
MACHINE_ID_FILES = (Path("/etc/machine-id"), Path("/proc/sys/kernel/random/boot_id"))


@dataclass(frozen=True, slots=True)
class Owner:
    """A process: its id, the moment it began (opaque text, may be empty) and the machine where both mean something."""

    pid: int
    started: str
    machine: str

    def labels(self, run_id: str) -> dict[str, str]:
        """The labels of everything that this owner makes for the run `run_id`."""
        return {
            labels.KIT: "run",
            labels.RUN: run_id,
            labels.PID: str(self.pid),
            labels.STARTED: self.started,
            labels.MACHINE: self.machine,
        }


def this_process() -> Owner:
    """The owner of what this process starts."""
    return Owner(os.getpid(), _began(os.getpid()), _machine())


def from_labels(found: Mapping[str, str]) -> Owner | None:
    """The owner that the labels of a container, a network or a scratch folder name; None if they name none."""
    pid, started, machine = found.get(labels.PID), found.get(labels.STARTED), found.get(labels.MACHINE)
    if pid is None or not pid.isdecimal() or int(pid) == 0 or started is None or machine is None:
        return None
    return Owner(int(pid), started, machine)


def is_gone(owner: Owner) -> bool:
    """True only if the owner was a process of this machine and no longer runs; another machine's can't be seen."""
    if owner.machine != _machine():
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return _began(owner.pid) != owner.started


def _machine() -> str:
    """The machine and the process namespace: a container that drives the same engine counts its processes apart.

    Not the host's name, which many machines share; and the initial namespace has one number on every Linux.
    """
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = "-"
    return f"{_machine_id(MACHINE_ID_FILES)} {namespace}"


def _machine_id(files: Sequence[Path]) -> str:
    """A number of this machine's own, hashed, for machine-id(5) asks that nobody publishes the file's content."""
    for file in files:
        with contextlib.suppress(OSError):
            found = file.read_text().strip()
            if found and found != "uninitialized":
                return hashlib.sha256(f"berth {found}".encode()).hexdigest()[:32]
    return socket.gethostname()


def _began(pid: int) -> str:
    """Field 22 of /proc/PID/stat with the boot's id, empty where there is no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    # The command's name, in parentheses, may hold spaces and parentheses of its own.
    return f"{boot}/{stat.rpartition(')')[2].split()[19]}"
