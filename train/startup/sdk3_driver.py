"""SDK v3's drivers, and the hooks that stand before the programs that its MPI driver calls.

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
MPI_DRIVER, SCRIPT_DRIVER = "mpi_driver.py", "basic_script_driver.py"
"""Under MPI(), and of a script without distributed=."""


def called_by_driver(root: Path = Path("/"), name: str = MPI_DRIVER) -> bool:
    """Whether the process that started this one is that driver of SDK v3's. `root` is that of the file system."""
    if not (root / _CHANNEL).is_dir():
        return False
    try:
        command = (root / "proc" / str(os.getppid()) / "cmdline").read_bytes()
    except OSError:
        return False
    driver = f"/sm_drivers/distributed_drivers/{name}".encode()
    return any(word.endswith(driver) for word in command.split(b"\0"))


def without_hooks(path: str) -> str:
    """PATH as it is without the hooks: where their real programs are found."""
    return ":".join(part for part in path.split(":") if part != HOOKS)
