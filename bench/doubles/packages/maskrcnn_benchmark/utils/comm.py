"""Ranks, by SMDDP."""

import smdistributed.dataparallel.torch.distributed as dist


def get_rank() -> int:
    return int(dist.get_rank())


def is_main_process() -> bool:
    return get_rank() == 0


def synchronize() -> None:
    dist.barrier()
