"""The loop of training."""

from typing import Any

import smdistributed.dataparallel.torch.distributed as dist
import torch


def do_train(
    model: torch.nn.Module,
    data_loader: Any,
    optimizer: Any,
    scheduler: Any,
    *_: Any,
    per_iter_end_callback_fn: Any = None,
) -> None:
    """A pass over the data, rank 0's loss at each step."""
    for number, (pictures, kinds) in enumerate(data_loader):
        loss = torch.nn.functional.cross_entropy(model(pictures), kinds)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if dist.get_rank() == 0:
            print(f"iter: {number} loss: {loss.item():.6f}")
