"""SDK v3's drivers, and the folder of our hooks, which replace programs that its MPI driver calls.

The drivers come with the job, as the channel sm_drivers; under MPI() mpi_driver.py runs on every host. A hook acts only
for this caller: for any other caller it runs the real program with unchanged arguments.
Source: sagemaker/train/container_drivers/distributed_drivers/mpi_driver.py of sagemaker-train 1.27.
"""

import os
from pathlib import Path

HOOKS = "/opt/berth/sdk3"
"""The folder of the hooks, first on PATH; docker/layers/kit.sh writes them."""
REAL_SSHD = "/usr/sbin/sshd.distrib"
"""Debian's sshd: docker/layers/openmpi.sh moved it here, because the hook has its old path."""
_CHANNEL = "opt/ml/input/data/sm_drivers"
MPI_DRIVER, SCRIPT_DRIVER = "mpi_driver.py", "basic_script_driver.py"
"""The drivers for MPI(), and for a script without distributed=."""


def called_by_driver(root: Path = Path("/"), name: str = MPI_DRIVER) -> bool:
    """Whether SDK v3's driver `name` is the parent of this process. `root`: of the file system."""
    if not (root / _CHANNEL).is_dir():
        return False
    try:
        command = (root / "proc" / str(os.getppid()) / "cmdline").read_bytes()
    except OSError:
        return False
    driver = f"/sm_drivers/distributed_drivers/{name}".encode()
    return any(word.endswith(driver) for word in command.split(b"\0"))


def without_hooks(path: str) -> str:
    """PATH without the hooks, to find the real programs."""
    return ":".join(part for part in path.split(":") if part != HOOKS)
