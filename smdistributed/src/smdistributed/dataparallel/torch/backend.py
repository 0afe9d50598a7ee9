"""The backend `smddp` of torch.distributed: NCCL where there are GPUs, else gloo, both as torch has them.

AWS's is NCCL with collectives of its own for some of AWS's instances. This one has none, and says so, once, on the
first rank. As NCCL, it moves tensors of GPUs only where there are any: "cpu:gloo,cuda:smddp" moves both.
"""

import atexit
import sys
from typing import Any

import torch
import torch.distributed as dist

NAME = "smddp"
_said: list[str] = []  # what each process group of this process goes over
_kept: list[Any] = []


def register() -> None:
    """Make `smddp` known to torch.distributed, once."""
    if NAME not in dist.Backend.backend_list:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=[device])


def _create(options: Any, given: Any) -> Any:
    """What torch.distributed calls for each process group: its store, ranks and time limit, and NCCL's own options."""
    over = "NCCL" if torch.cuda.is_available() else "gloo"
    _say(options.group_rank, options.group_size, over)
    made = _nccl(options, given) if over == "NCCL" else _gloo(options)
    made._set_sequence_number_for_group()
    return made


def _gloo(options: Any) -> Any:
    """Kept to the end of the process. Where a DDP outlives destroy_process_group and is the last to let go of it, torch
    2.13 waits for gloo's thread with Python's lock in hand, which the thread may be waiting for, and hangs.
    """
    made = dist.ProcessGroupGloo(options.store, options.group_rank, options.group_size, timeout=options.timeout)
    if not _kept:
        atexit.register(_kept.clear)
    _kept.append(made)
    return made


def _nccl(options: Any, given: Any) -> Any:
    ours = given or dist.ProcessGroupNCCL.Options()
    ours._timeout = options.timeout
    ours.global_ranks_in_group = options.global_ranks_in_group
    ours.group_name = options.group_id
    return dist.ProcessGroupNCCL(options.store, options.group_rank, options.group_size, ours)


def _say(rank: int, size: int, over: str) -> None:
    """The one line of a job: the first group that a process makes is that of all ranks."""
    if not _said and rank == 0:
        ranks = "1 rank" if size == 1 else f"{size} ranks"
        print(f"smddp: open implementation, not AWS's library: {ranks} over {over}", file=sys.stderr, flush=True)
    _said.append(over)
