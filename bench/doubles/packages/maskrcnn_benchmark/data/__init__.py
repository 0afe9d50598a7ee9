"""Each rank's own random pictures."""

from typing import Any

import smdistributed.dataparallel.torch.distributed as dist
import torch

STEPS, BATCH = 12, 4


def make_data_loader(cfg: Any, *, is_distributed: bool, start_iter: int = 0, **_: Any) -> tuple[list[Any], int]:
    """12 batches of 4 pictures (3×16×16) and their classes, of three; and how many a pass has."""
    generator = torch.Generator().manual_seed(100 + (dist.get_rank() if is_distributed else 0))
    batches = []
    for _step in range(STEPS):
        kinds = torch.randint(0, 3, (BATCH,), generator=generator)
        pictures = torch.randn(BATCH, 3, 16, 16, generator=generator) + kinds.view(-1, 1, 1, 1)
        batches.append((pictures, kinds))
    return batches, STEPS
