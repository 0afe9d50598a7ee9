"""The faults that bench/faults.py causes, the reasons that hosts must report, and the table of results."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench import report

REPORTED_WITHIN = 15.0
RENDEZVOUS_LIMIT = 5
COLUMNS = (
    *("fault", " hosts of the job", "hosts", " seconds", " exit code"),
    *("first line of /opt/ml/output/failure", "cause reported in time"),
)
PROGRAM = """
import os, time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
print("READY", flush=True)
while not os.path.exists("/opt/ml/code/go"):
    time.sleep(0.01)
{fault}
time.sleep(100)
"""
_FILLS = "open({path!r}, 'wb').write(bytes(32 << 20))"
_FULL = r"rank 1 on algo-2: OSError: \[Errno 28\] No space left on device .*a disk of this host is full: "


@dataclass(frozen=True)
class Fault:
    """One fault. says: a regular expression for the first failure line of every surviving host.

    program: code that the ranks on the hosts `go` run. Containers in `kills` are killed, those in `cuts` lose their
    network, those in `absent` are never started. environment, options: host → variables and container options.
    small_disks: host → folder of /opt/ml on a disk of 1 MB. before_training: no rank ever runs.
    """

    says: str
    program: str = "pass"
    go: tuple[str, ...] = ()
    kills: tuple[str, ...] = ()
    cuts: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    environment: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    small_disks: Mapping[str, str] = field(default_factory=dict)
    before_training: bool = False


FAULTS = {
    "a rank raises": Fault(r"rank 1 on algo-2: ValueError: no rows", "raise ValueError('no rows')", go=("algo-2",)),
    "a rank is killed": Fault(
        r"rank 1 on algo-2 was killed by SIGKILL, and memory was not short", "os.kill(os.getpid(), 9)", go=("algo-2",)
    ),
    "a rank runs out of memory (container of 400 MB)": Fault(
        r"rank 1 on algo-2 was killed by SIGKILL: out of memory \(peak \d+ MiB of 400 MiB\)",
        "held = bytearray(b'x') * (1 << 30)",
        go=("algo-2",),
        options={"algo-2": {"mem_limit": "400m", "memswap_limit": "400m"}},
    ),
    "a worker is killed (docker kill)": Fault(r"host algo-2 was lost while the job ran", kills=("algo-2",)),
    "the leader is killed (docker kill)": Fault(r"the leader algo-1 was lost while the job ran", kills=("algo-1",)),
    f"a host never starts, time-out {RENDEZVOUS_LIMIT} s": Fault(
        r"host algo-2 did not join the leader algo-1", absent=("algo-2",), before_training=True
    ),
    "a host has an invalid setting": Fault(
        r"host algo-2 stopped before all hosts had joined: BERTH_PROCESSES_PER_HOST must be",
        environment={"algo-2": {"BERTH_PROCESSES_PER_HOST": "none"}},
        before_training=True,
    ),
    "a host's network is cut": Fault(r"(host algo-2|the leader algo-1) was lost while the job ran", cuts=("algo-2",)),
    "a full disk, /opt/ml/model": Fault(
        _FULL, _FILLS.format(path="/opt/ml/model/weights"), go=("algo-2",), small_disks={"algo-2": "model"}
    ),
    "a full disk, /opt/ml/output": Fault(
        _FULL, _FILLS.format(path="/opt/ml/output/data/all"), go=("algo-2",), small_disks={"algo-2": "output"}
    ),
    "a full disk, /tmp": Fault(
        _FULL, _FILLS.format(path="/tmp/cache"), go=("algo-2",), options={"algo-2": {"tmpfs": {"/tmp": "size=16m"}}}
    ),
    "a full disk, /tmp, before training": Fault(
        r"rank 1 on algo-2: train.py could not start under mpirun, .*a disk of this host is full: ",
        options={"algo-2": {"tmpfs": {"/tmp": "size=1m"}}},
        before_training=True,
    ),
    "two at once: a rank raises, another host is killed": Fault(
        r"rank 0 on algo-1: ValueError: no rows|host algo-2 was lost",
        "raise ValueError('no rows')",
        go=("algo-1",),
        kills=("algo-2",),
    ),
    "two at once: a rank raises, another is killed": Fault(
        r"rank 0 on algo-1: ValueError: no rows|rank 1 on algo-2 was killed by SIGKILL",
        "if MPI.COMM_WORLD.rank:\n    os.kill(os.getpid(), 9)\nraise ValueError('no rows')",
        go=("algo-1", "algo-2"),
    ),
}


@dataclass(frozen=True, slots=True)
class HostEnd:
    """How one host ended: seconds since the fault, its container's exit code, the first line of its failure file."""

    host: str
    seconds: float
    code: int
    sentence: str
    killed: bool


def right(fault: Fault, end: HostEnd) -> bool:
    """Whether a host failed with the expected reason in time; always true for a host that was killed."""
    return end.killed or (
        end.code != 0 and end.seconds < REPORTED_WITHIN and re.search(fault.says, end.sentence) is not None
    )


def rows(name: str, fault: Fault, hosts: int, ends: Sequence[HostEnd]) -> list[str]:
    """Rows of the table; hosts with the same exit code and sentence share a row."""
    groups: dict[tuple[int, str, bool], list[HostEnd]] = {}
    for end in ends:
        groups.setdefault((end.code, end.sentence, end.killed), []).append(end)
    table_rows = []
    for (code, sentence, killed), group in groups.items():
        who = ", ".join(end.host for end in group)
        seconds = max(end.seconds for end in group)
        verdict = "–" if killed else "yes" if all(right(fault, end) for end in group) else "**no**"
        shown = "(was killed)" if killed else sentence or "(nothing)"
        table_rows.append(report.row(name, hosts, who, f"{seconds:.1f}", code, shown, verdict))
    return table_rows
