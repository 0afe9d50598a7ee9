"""The faults that bench/faults.py brings about, what each host must say of them, and the table of what it said."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NAMED_WITHIN = 15.0
RENDEZVOUS_LIMIT = 5
HEAD = """\
| fault | hosts of the job | hosts | seconds | exit code | first line of /opt/ml/output/failure | named in time |
|---|---:|---|---:|---:|---|---|"""
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
    """What is done to a job. says: what each host that is left has in its first line, as a regular expression.

    `program` is what ranks do on the hosts `go`. The containers of `kills` are killed, those of `cuts` cut off from the
    network, those of `absent` never started. environment, options, small_disks: of a host, by its name; the last a
    folder of /opt/ml that is a disk of 1 MB. before_training: no rank ever runs.
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
    f"a host never comes, limit {RENDEZVOUS_LIMIT} s": Fault(
        r"host algo-2 never came to the rendezvous at algo-1", absent=("algo-2",), before_training=True
    ),
    "a host is refused before the rendezvous": Fault(
        r"host algo-2 stopped before all hosts had come: BERTH_PROCESSES_PER_HOST must be",
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
    said: str
    killed: bool


def right(fault: Fault, end: HostEnd) -> bool:
    """Whether a host did what it must: one that was killed can't do anything."""
    return end.killed or (end.code != 0 and end.seconds < NAMED_WITHIN and re.search(fault.says, end.said) is not None)


def rows(name: str, fault: Fault, hosts: int, ends: Sequence[HostEnd]) -> list[str]:
    """Rows of the table: hosts that ended with one code and one sentence stand together."""
    groups: dict[tuple[int, str, bool], list[HostEnd]] = {}
    for end in ends:
        groups.setdefault((end.code, end.said, end.killed), []).append(end)
    found = []
    for (code, said, killed), group in groups.items():
        who = ", ".join(end.host for end in group)
        seconds = max(end.seconds for end in group)
        verdict = "–" if killed else "yes" if all(right(fault, end) for end in group) else "**no**"
        sentence = "(was killed)" if killed else said.replace("|", "\\|") or "(nothing)"
        found.append(f"| {name} | {hosts} | {who} | {seconds:.1f} | {code} | {sentence} | {verdict} |")
    return found
