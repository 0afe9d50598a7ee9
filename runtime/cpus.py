"""How many CPUs this container may really use.

A container with `--cpus 2` on a host of 64 still sees 64 CPUs; as many threads would only wait for each other (and
older model servers started one worker per CPU they saw). What counts is the smaller of the CPUs that the process may be
scheduled on and the quota of its cgroup.
"""

import math
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def cpu_quota(cgroup: Path = CGROUP) -> float | None:
    """The quota of this container in CPUs (1.5 = one and a half), from cgroup v2 or v1; None if there is no limit."""
    try:
        quota, period = (cgroup / "cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        try:
            quota = (cgroup / "cpu" / "cpu.cfs_quota_us").read_text(encoding="ascii").strip()
            period = (cgroup / "cpu" / "cpu.cfs_period_us").read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return None
    if not (quota.isdecimal() and period.isdecimal()) or int(period) == 0:  # v2 says "max", v1 says "-1": no limit
        return None
    return int(quota) / int(period)


def thread_count(schedulable: int, quota: float | None, asked: str | None = None) -> int:
    """Threads for the model: `asked` (OMP_NUM_THREADS) if it is a positive number, else CPUs within the quota."""
    if asked is not None and asked.isdecimal() and int(asked) > 0:
        return int(asked)
    if quota is None:
        return max(1, schedulable)
    return max(1, min(schedulable, math.ceil(quota)))


def threads() -> int:
    """`thread_count` for this process."""
    return thread_count(len(os.sched_getaffinity(0)), cpu_quota(), os.environ.get("OMP_NUM_THREADS"))
