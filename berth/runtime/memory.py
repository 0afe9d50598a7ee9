"""Limit, peak and free memory of this container, from its cgroup (v2 or v1) and its host.

root: the root of the file system.
"""

import ctypes
from contextlib import suppress
from pathlib import Path

from berth.runtime.host_files import read_text

_ROOT = Path("/")
_UNLIMITED_BYTES = 1 << 60  # cgroup v1 writes a number near 2**63 for "no limit"

WORKER_SCORE, CONVERSION_SCORE = 500, 1000
"""oom_score_adj: if memory runs out, the kernel kills a conversion first, then a worker, then the server."""


def available_memory(root: Path = _ROOT) -> int:
    """Free bytes within the cgroup's limit and on the host. File cache that the kernel can drop counts as free."""
    cgroup = root / "sys/fs/cgroup"
    host = _value_of(root / "proc/meminfo", "MemAvailable:") * 1024
    for limit, usage, stat, name in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
    ):
        most, used = _number(cgroup / limit), _number(cgroup / usage)
        if most is not None and used is not None:
            return max(0, min(host, most - used + _value_of(cgroup / stat, name)))
    return host


def memory_limit(root: Path = _ROOT) -> int | None:
    """Bytes that this container may use: the smaller of its cgroup's limit and the host's memory; None if unknown."""
    cgroup = root / "sys/fs/cgroup"
    limits = [
        _number(cgroup / "memory.max"),
        _number(cgroup / "memory/memory.limit_in_bytes"),
        _value_of(root / "proc/meminfo", "MemTotal:") * 1024 or None,
    ]
    return min((limit for limit in limits if limit is not None and limit < _UNLIMITED_BYTES), default=None)


def memory_peak(root: Path = _ROOT) -> int | None:
    """Peak memory of this container in bytes, None if the kernel does not report it."""
    v2, v1 = root / "sys/fs/cgroup/memory.peak", root / "sys/fs/cgroup/memory/memory.max_usage_in_bytes"
    peak = _number(v2)
    return _number(v1) if peak is None else peak


def oom_kills(root: Path = _ROOT) -> int:
    """How many processes of this container the kernel has killed because memory ran out."""
    cgroup = root / "sys/fs/cgroup"
    return max(_value_of(cgroup / name, "oom_kill") for name in ("memory.events", "memory/memory.oom_control"))


def set_oom_score(process: int, score: int, root: Path = _ROOT) -> None:
    """Let the kernel kill this process before those with a lower score if memory runs out.

    Raising the score needs no privileges. If it fails, the kernel chooses by size alone.
    """
    with suppress(OSError):
        (root / f"proc/{process}/oom_score_adj").write_text(str(score), "ascii")


def trim_heap() -> None:
    """Make glibc return freed memory to the kernel (4 ms); other C libraries do so by themselves."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _number(path: Path) -> int | None:
    """The number in a file; None if the file is missing or has another content, such as "max"."""
    text = read_text(path).strip()
    return int(text) if text.isdecimal() else None


def _value_of(path: Path, name: str) -> int:
    """The number after `name` in a file; 0 if file or name is missing."""
    pairs = (line.split() for line in read_text(path).splitlines())
    return next((int(pair[1]) for pair in pairs if pair[:1] == [name]), 0)
