"""Which rank this process is: the variables of mpirun (OMPI_COMM_WORLD_*) and of torchrun, read alike; pure.

Torchrun's names win, for a launcher that sets them has looked at mpirun's before.
"""

import json
from collections.abc import Mapping

PORT = "29500"  # torch.distributed's own default
_OF_MPI = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}


def started_by_launcher(environ: Mapping[str, str]) -> bool:
    """Whether mpirun or torchrun started this process, even as the only one."""
    return bool(environ.get("WORLD_SIZE") or environ.get(_OF_MPI["WORLD_SIZE"]))


def launch_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """What torch.distributed reads, complete; of a process without a launcher, that it is alone.

    RuntimeError where a number is none, where a rank has no number, and where the ranks of several hosts don't know
    whom to ask.
    """
    world_size = _number(environ, "WORLD_SIZE", "1")
    rank = _number(environ, "RANK", "0" if world_size == "1" else "")
    local_size = _number(environ, "LOCAL_WORLD_SIZE", world_size)
    local_rank = _number(environ, "LOCAL_RANK", rank if local_size == world_size else "")
    return {
        "RANK": rank,
        "WORLD_SIZE": world_size,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": local_size,
        "MASTER_ADDR": _leader(environ, alone=local_size == world_size),
        "MASTER_PORT": environ.get("MASTER_PORT") or PORT,
    }


def _number(environ: Mapping[str, str], name: str, otherwise: str) -> str:
    """One of torchrun's variables, or mpirun's in its place; `otherwise` is empty where there must be one."""
    source = name if environ.get(name) else _OF_MPI[name]
    text = environ.get(source) or otherwise
    if not text:
        raise RuntimeError(f"{name} is not set, and the job has several ranks; start it with mpirun or torchrun.")
    if not text.isdecimal():
        raise RuntimeError(f"{source} is {text!r}, which is no number; start the job with mpirun or torchrun.")
    return text


def _leader(environ: Mapping[str, str], *, alone: bool) -> str:
    """The host that the ranks meet at; `alone`: there is one host only."""
    try:
        hosts = json.loads(environ.get("SM_HOSTS") or "[]")
    except json.JSONDecodeError:
        hosts = []
    named = environ.get("MASTER_ADDR") or environ.get("SMDATAPARALLEL_SERVER_ADDR")
    found = named or ("127.0.0.1" if alone else next(iter(hosts), ""))
    if not found:
        raise RuntimeError(
            "MASTER_ADDR is not set, and the ranks are on several hosts; set it to the first host's name, with "
            "mpirun -x MASTER_ADDR=NAME."
        )
    return str(found)
