"""Environment variables that the launch plan sets for a host's programs, unless the user has set them. Pure."""

from collections.abc import Mapping

from berth.contract.launch_options import LaunchOptions
from berth.runtime.rank import MASTER_PORT
from berth.train.planning import efa, smddp
from berth.train.planning.job import Job


def planned_variables(
    job: Job, options: LaunchOptions, environ: Mapping[str, str], backend: str, interface: str, threads: int | None
) -> dict[str, str]:
    """The plan's variables. The container's `environ` overrides our values, and `mpirun -x` overrides both.

    threads: per rank; None for a program that runs without ranks.
    """
    alone = len(job.hosts) == 1
    ours = {
        "BERTH_BACKEND": backend,
        # A single host's name may not resolve (docker run --network=none); several hosts must find the leader.
        "MASTER_ADDR": "127.0.0.1" if alone else job.leader,
        # The leader may choose another port when the hosts meet.
        "MASTER_PORT": str(MASTER_PORT),
        # Without it gloo uses the address of the container's own host name, which can be the same on all hosts or
        # missing.
        "GLOO_SOCKET_IFNAME": interface,
        "PYTHONUNBUFFERED": "1",
    }
    if backend != "gloo" and not alone:
        ours["NCCL_SOCKET_IFNAME"] = interface
    if backend == "smddp":
        ours |= smddp.variables(job)
    if backend == "gloo" and job.program is not None:
        # Without it transformers' Trainer starts no process group on a CPU: each rank would train alone, as rank 0.
        ours["ACCELERATE_USE_CPU"] = "true"
    if threads is not None:
        ours["OMP_NUM_THREADS"] = str(threads)
    if options.efa and not alone:
        ours |= efa.STRICT
    return {**{name: environ.get(name) or value for name, value in ours.items()}, **options.exports}
