"""What this host has: GPUs, CPUs, memory, /dev/shm, network interfaces.

Looks at devices and cgroups (v1 and v2), never at an instance type, and does not import torch: a container's share is
often smaller than the machine. Every function takes the root of the file system, so that a test can give it another
one.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from berth.runtime.cpus import count_cpus
from berth.runtime.gpu.driver import count_gpus, torch_cuda

SMALL_SHM_BYTES = 1 << 30
_UNLIMITED_BYTES = 1 << 60  # cgroup v1 writes a number near 2**63 for "no limit"
_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Hardware:
    """One host. `gpus` counts devices and, once the driver was asked, those that it offers; `cuda` is the CUDA version
    that torch was built for, None for a CPU build.

    `memory` and `shm` are bytes, None where unknown.
    """

    gpus: int
    cuda: str | None
    cpus: int
    memory: int | None
    shm: int | None
    interfaces: tuple[str, ...]

    @property
    def usable_gpus(self) -> int:
        """GPUs that this image's torch can drive."""
        return self.gpus if self.cuda else 0


def probe(root: Path = _ROOT, environ: Mapping[str, str] = os.environ) -> Hardware:
    """Look at this host."""
    return Hardware(
        gpus=count_gpus(root, environ),
        cuda=torch_cuda(),
        cpus=count_cpus(root),
        memory=memory_limit(root),
        shm=_shm_size(root),
        interfaces=tuple(sorted(path.name for path in _entries(root / "sys/class/net"))),
    )


def memory_limit(root: Path = _ROOT) -> int | None:
    """Bytes that this container may use: its cgroup's limit or the machine's memory, whichever is less."""
    limits = [
        _number(root / "sys/fs/cgroup/memory.max"),
        _number(root / "sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ]
    if match := re.search(r"^MemTotal:\s+(\d+) kB", _read(root / "proc/meminfo") or "", re.MULTILINE):
        limits.append(int(match[1]) * 1024)
    known = [limit for limit in limits if limit is not None and limit < _UNLIMITED_BYTES]
    return min(known, default=None)


def memory_peak(root: Path = _ROOT) -> int | None:
    """The most bytes that this container has used so far, None where the kernel does not say."""
    v2, v1 = root / "sys/fs/cgroup/memory.peak", root / "sys/fs/cgroup/memory/memory.max_usage_in_bytes"
    peak = _number(v2)
    return _number(v1) if peak is None else peak


def oom_kills(root: Path = _ROOT) -> int:
    """How many processes of this container the kernel has killed for memory."""
    for name in ("memory.events", "memory/memory.oom_control"):
        if match := re.search(r"^oom_kill (\d+)", _read(root / "sys/fs/cgroup" / name) or "", re.MULTILINE):
            return int(match[1])
    return 0


def _shm_size(root: Path) -> int | None:
    try:
        status = os.statvfs(root / "dev/shm")
    except OSError:
        return None
    return status.f_frsize * status.f_blocks


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return None


def _number(path: Path) -> int | None:
    text = (_read(path) or "").strip()
    return int(text) if text.isdigit() else None
