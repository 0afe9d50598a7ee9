"""Reads this process's rank from the variables of torchrun or mpirun (OMPI_COMM_WORLD_*); pure.

torchrun's variables win: a launcher that sets them under mpirun has read mpirun's already.
"""

import json
from collections.abc import Mapping

PORT = "29500"  # torch.distributed's own default
_MPI_VARIABLES = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}


def started_by_launcher(environ: Mapping[str, str]) -> bool:
    """Whether mpirun or torchrun started this process, even as the only one."""
    return bool(environ.get("WORLD_SIZE") or environ.get(_MPI_VARIABLES["WORLD_SIZE"]))


def launch_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """All variables that torch.distributed reads. Without a launcher, the process is the only rank.

    RuntimeError if a value is not a number, if the rank is missing, or if the ranks are on several hosts and the first
    host's name is missing.
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


def _number(environ: Mapping[str, str], name: str, default: str) -> str:
    """The value of torchrun's variable, else of mpirun's, else `default`; an empty `default`: RuntimeError."""
    source = name if environ.get(name) else _MPI_VARIABLES[name]
    text = environ.get(source) or default
    if not text:
        raise RuntimeError(f"{name} is not set, and the job has several ranks; start it with mpirun or torchrun.")
    if not text.isdecimal():
        raise RuntimeError(f"{source} is {text!r}, which is not a number; start the job with mpirun or torchrun.")
    return text


def _leader(environ: Mapping[str, str], *, alone: bool) -> str:
    """The host on which the ranks meet; `alone`: there is only one host."""
    try:
        hosts = json.loads(environ.get("SM_HOSTS") or "[]")
    except json.JSONDecodeError:
        hosts = []
    address = environ.get("MASTER_ADDR") or environ.get("SMDATAPARALLEL_SERVER_ADDR")
    address = address or ("127.0.0.1" if alone else next(iter(hosts), ""))
    if not address:
        raise RuntimeError(
            "MASTER_ADDR is not set, and the ranks are on several hosts; set it to the first host's name, with "
            "mpirun -x MASTER_ADDR=NAME."
        )
    return str(address)
