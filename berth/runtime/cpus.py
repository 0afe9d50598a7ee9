"""The number of CPUs that this container may use, for both images.

A container with `--cpus 2` on a host with 64 CPUs still sees 64, but 64 threads would only wait for each other. The
number is the smaller of two: the CPUs on which the process may be scheduled, and the quota of its cgroup. The quota is
rounded down, because all threads wait for a throttled one.
"""

import os
from pathlib import Path

from berth.runtime.host_files import read_text

_ROOT = Path("/")


def cpu_quota(root: Path = _ROOT) -> float | None:
    """The quota of this container in CPUs (1.5 = one and a half), from cgroup v2 or v1; None if there is no limit.

    root: the root of the file system.
    """
    cgroup = root / "sys/fs/cgroup"
    quota, _, period = read_text(cgroup / "cpu.max").strip().partition(" ")
    if not period:
        quota, period = (read_text(cgroup / "cpu" / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    if not (quota.isdecimal() and period.isdecimal()) or int(period) == 0:  # v2 says "max", v1 says "-1": no limit
        return None
    return int(quota) / int(period)


def count_cpus(root: Path = _ROOT) -> int:
    """The number of CPUs that this process may use, at least one."""
    schedulable, quota = len(os.sched_getaffinity(0)), cpu_quota(root)
    return schedulable if quota is None else max(1, min(schedulable, int(quota)))


def model_threads() -> int:
    """Threads for the only model of this process: OMP_NUM_THREADS if it is a positive number, else all CPUs."""
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return int(wanted) if wanted.isdecimal() and int(wanted) > 0 else count_cpus()


def has_vnni(root: Path = _ROOT) -> bool:
    """Whether this CPU adds products of 8-bit numbers in 32 bits (VNNI). Older CPUs add pairs in 16 bits, which may
    overflow.
    """
    return not {"avx512_vnni", "avx_vnni"}.isdisjoint(read_text(root / "proc/cpuinfo").split())
