"""What this host has: GPUs, CPUs, /dev/shm, network interfaces.

Looks at devices and cgroups (v1 and v2), never at an instance type, and does not import torch: a container's share is
often smaller than the machine. Every function takes the root of the file system, so that a test can give it another
one.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from berth.runtime.cpus import count_cpus
from berth.runtime.gpu.driver import count_gpus, torch_cuda

SMALL_SHM_BYTES = 1 << 30
_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Hardware:
    """One host. `gpus` counts devices and, once the driver was asked, those that it offers; `cuda` is the CUDA version
    that torch was built for, None for a CPU build.

    `shm` is in bytes, None where unknown.
    """

    gpus: int
    cuda: str | None
    cpus: int
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
        shm=_shm_size(root),
        interfaces=network_interfaces(root),
    )


def network_interfaces(root: Path = _ROOT) -> tuple[str, ...]:
    """Names of the network interfaces, lo among them, in order."""
    return tuple(sorted(path.name for path in entries(root / "sys/class/net")))


def interface_here(named: str | None, root: Path = _ROOT) -> str:
    """The interface that the job names if this host has it, else empty."""
    return named if named and named in network_interfaces(root) else ""


def choose_interface(named: str | None, available: Sequence[str], *, alone: bool) -> str:
    """The interface that hosts talk over: the one that SageMaker names if it exists (local mode of SDK v3 names one
    that doesn't), else the first that is not lo. One host alone needs no network at all.
    """
    if alone:
        return "lo"
    if named in available and named is not None:
        return named
    return next((name for name in available if name != "lo"), "lo")


def _shm_size(root: Path) -> int | None:
    try:
        status = os.statvfs(root / "dev/shm")
    except OSError:
        return None
    return status.f_frsize * status.f_blocks


def entries(folder: Path) -> list[Path]:
    """What is in a folder; nothing if it is missing or can't be read."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []
