"""What this host has: GPUs, CPUs, /dev/shm, network interfaces.

Reads devices and cgroups (v1 and v2), not the instance type: a container's share is often smaller than the machine.
Does not import torch. Functions that read files take the root of the file system, so that a test can pass another one.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from berth.runtime.cpus import count_cpus
from berth.runtime.gpu.driver import count_gpus, torch_cuda
from berth.runtime.interfaces import network_interfaces

SMALL_SHM_BYTES = 1 << 30
_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Hardware:
    """One host's hardware.

    gpus: the GPU devices; after the check of the driver, those that it offers. cuda: the CUDA version that torch was
    built for, None for a CPU build. shm: size of /dev/shm in bytes, None if unknown.
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
    """Read this host's hardware."""
    return Hardware(
        gpus=count_gpus(root, environ),
        cuda=torch_cuda(),
        cpus=count_cpus(root),
        shm=_shm_size(root),
        interfaces=network_interfaces(root),
    )


def _shm_size(root: Path) -> int | None:
    try:
        status = os.statvfs(root / "dev/shm")
    except OSError:
        return None
    return status.f_frsize * status.f_blocks
