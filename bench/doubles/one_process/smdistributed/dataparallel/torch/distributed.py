"""Of SMDDP version 1 what published scripts call, for replicas of one process (`replicas.py`)."""

from typing import Any

import replicas
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook


def init_process_group(*_: Any, **__: Any) -> None:
    """Nothing to do: the replicas are there."""


def is_initialized() -> bool:
    return True


def get_rank(*_: Any) -> int:
    return replicas.rank()


def get_world_size(*_: Any) -> int:
    return replicas.the.count


get_local_rank, get_local_size = get_rank, get_world_size


def barrier(*_: Any, **__: Any) -> None:
    replicas.the.exchange(None)


class DistributedDataParallel(torch.nn.Module):
    """The module with the first replica's weights, whose gradients are the mean of all replicas' at each step."""

    def __init__(self, module: torch.nn.Module, **_: Any) -> None:
        super().__init__()
        self.module = module
        replicas.copy_from_first(module)
        mine = replicas.rank()
        parameters = list(module.parameters())
        known = {id(each) for each in parameters}

        def before(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            theirs = {id(each) for group in optimizer.param_groups for each in group["params"]}
            if replicas.rank() == mine and theirs & known:
                replicas.average_gradients(parameters)

        register_optimizer_step_pre_hook(before)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return self.module(*arguments, **named)
