"""SDK v3's MPI driver, and the hooks that stand before the programs that it calls.

The driver comes with the job, as the channel sm_drivers, and runs mpi_driver.py on every host. A hook acts for that
caller alone: any other caller of the same name gets the real program, its arguments unchanged.
Source: sagemaker/train/container_drivers/distributed_drivers/mpi_driver.py of sagemaker-train 1.27.
"""

import os
from pathlib import Path

HOOKS = "/opt/berth/sdk3"
"""The folder of the hooks, first on PATH; docker/layers/kit.sh writes them."""
REAL_SSHD = "/usr/sbin/sshd.distrib"
"""Where docker/layers/openmpi.sh has moved Debian's own, whose place the hook takes."""
_CHANNEL = "opt/ml/input/data/sm_drivers"
_MPI_DRIVER = b"/sm_drivers/distributed_drivers/mpi_driver.py"


def called_by_driver(root: Path = Path("/")) -> bool:
    """Whether the process that started this one is SDK v3's MPI driver. `root` is that of the file system."""
    if not (root / _CHANNEL).is_dir():
        return False
    try:
        command = (root / "proc" / str(os.getppid()) / "cmdline").read_bytes()
    except OSError:
        return False
    return any(word.endswith(_MPI_DRIVER) for word in command.split(b"\0"))


def without_hooks(path: str) -> str:
    """PATH as it is without the hooks: where their real programs are found."""
    return ":".join(part for part in path.split(":") if part != HOOKS)
