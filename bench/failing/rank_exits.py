"""Rank 1 exits with 3 and without output, while rank 0 waits for it."""

import os
import sys

import torch.distributed


def find_rows(rank: int) -> None:
    if rank == 1:
        sys.exit(3)


torch.distributed.init_process_group("gloo")
find_rows(int(os.environ["RANK"]))
torch.distributed.barrier()
