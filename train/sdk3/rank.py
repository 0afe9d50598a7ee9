"""Becomes a rank's program with the variables that torch reads: `python -m berth.train.sdk3.rank PROGRAM …`.

SDK v3's driver sets none of them under mpirun: torch would find no process group to join, and accelerate would train
each rank alone.
"""

import os
import sys
from collections.abc import Mapping, Sequence

from berth.contract.errors import JobError
from berth.runtime.cpus import count_cpus
from berth.runtime.dispatch import USAGE
from berth.train.environment import MASTER_PORT, Rank
from berth.train.hardware import network_interfaces
from berth.train.log import get_logger
from berth.train.plan import choose_interface


def rank_variables(environ: Mapping[str, str], interfaces: Sequence[str], cpus: int) -> dict[str, str]:
    """RANK and the like of the rank that mpirun says this is, and, where the user has set none, where ranks meet.

    Raises JobError without mpirun's variables.
    """
    rank = Rank.from_mpirun(environ)
    if rank is None:
        raise JobError("the rank was started without mpirun's variables; leave its start to SDK v3's MPI().")
    interface = choose_interface(environ.get("SM_NETWORK_INTERFACE_NAME"), interfaces, alone=False)
    ours = {
        "MASTER_ADDR": environ.get("SM_MASTER_ADDR", "127.0.0.1"),
        "MASTER_PORT": environ.get("SM_MASTER_PORT", str(MASTER_PORT)),
        "GLOO_SOCKET_IFNAME": interface,
        "OMP_NUM_THREADS": str(max(1, cpus // rank.local_world_size)),
    }
    return {**{name: environ.get(name) or value for name, value in ours.items()}, **rank.variables()}


def main() -> None:
    """Become the program."""
    try:
        os.environ.update(rank_variables(os.environ, network_interfaces(), count_cpus()))
    except JobError as error:
        get_logger().error("%s", error)
        sys.exit(USAGE)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
