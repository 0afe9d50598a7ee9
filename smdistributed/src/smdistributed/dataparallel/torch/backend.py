"""The backend `smddp` of torch.distributed: torch's own NCCL if there are GPUs, else its gloo.

AWS's backend is NCCL with special collectives for some of AWS's instances. This one has none; the first rank logs once
that it is not AWS's. If there are GPUs it moves only GPU tensors, like NCCL; "cpu:gloo,cuda:smddp" moves both kinds.
"""

import atexit
import sys
from typing import Any

import torch
import torch.distributed as dist

from ...gloo_threads import wait_at_exit

NAME = "smddp"
_used_backends: list[str] = []  # NCCL or gloo, per process group of this process
_gloo_groups: list[Any] = []


def register() -> None:
    """Make `smddp` known to torch.distributed, once."""
    if NAME not in dist.Backend.backend_list:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=[device])


def _create(options: Any, backend_options: Any) -> Any:
    """Called by torch.distributed per process group.

    options: store, ranks and time-out. backend_options: NCCL's options, or None.
    """
    backend = "NCCL" if torch.cuda.is_available() else "gloo"
    _announce(options.group_rank, options.group_size, backend)
    group = _nccl(options, backend_options) if backend == "NCCL" else _gloo(options)
    group._set_sequence_number_for_group()
    return group


def _gloo(options: Any) -> Any:
    """A gloo group that lives until the process ends.

    Otherwise torch 2.13 can hang if a DDP outlives destroy_process_group: when it drops the last reference to the
    group, torch waits for gloo's thread while it holds the GIL, which that thread may need.
    """
    group = dist.ProcessGroupGloo(options.store, options.group_rank, options.group_size, timeout=options.timeout)
    if not _gloo_groups:
        atexit.register(_gloo_groups.clear)
        wait_at_exit()
    _gloo_groups.append(group)
    return group


def _nccl(options: Any, backend_options: Any) -> Any:
    nccl_options = backend_options or dist.ProcessGroupNCCL.Options()
    nccl_options._timeout = options.timeout
    nccl_options.global_ranks_in_group = options.global_ranks_in_group
    nccl_options.group_name = options.group_id
    return dist.ProcessGroupNCCL(options.store, options.group_rank, options.group_size, nccl_options)


def _announce(rank: int, size: int, backend: str) -> None:
    """Log one line per job: the first group of a process contains all ranks."""
    if not _used_backends and rank == 0:
        ranks = "1 rank" if size == 1 else f"{size} ranks"
        print(f"smddp: open implementation, not AWS's library: {ranks} over {backend}", file=sys.stderr, flush=True)
    _used_backends.append(backend)
