"""How much memory this container may still take, from its cgroup and its host; and giving some back."""

import ctypes
from pathlib import Path

_ROOT = Path("/")


def available_memory(root: Path = _ROOT) -> int:
    """Bytes until the cgroup's limit (v2 or v1), or until the host has none left. What the kernel keeps of files and
    can drop at any time counts as free. `root` is that of the file system.
    """
    cgroup = root / "sys/fs/cgroup"
    host = _named(root / "proc/meminfo", "MemAvailable:") * 1024
    for limit, usage, stat, name in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
    ):
        most, used = _number(cgroup / limit), _number(cgroup / usage)
        if most is not None and used is not None:
            return max(0, min(host, most - used + _named(cgroup / stat, name)))
    return host


def give_back() -> None:
    """Let the C library give back what it keeps of freed memory (4 ms); other libraries than glibc do so unasked."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _number(path: Path) -> int | None:
    """What is in a file; None for no number, such as "max", or no file."""
    try:
        text = path.read_text("ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _named(path: Path, name: str) -> int:
    """The number behind a name, 0 where there is none."""
    try:
        lines = path.read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.split()[:1] == [name]), 0)
