"""Rank 1 fails while rank 0 waits for it in a collective."""

import os

import torch.distributed

from work import load

torch.distributed.init_process_group("gloo")
if os.environ["RANK"] == "1":
    load(7)
torch.distributed.barrier()
