"""Of the model parallel library what published scripts call: the whole model in each replica, microbatches in a loop.

partitions and placement change nothing of what a job computes; so there are none here. REFERENCE_MICROBATCHES says what
the job's own mp_parameters do, and the replicas are its ranks divided by its partitions.
"""

import contextlib
import functools
import os
from collections.abc import Callable
from typing import Any

import replicas
import torch
import torch.distributed

from . import amp as amp
from . import nn as nn

PP_GROUP = "PP_GROUP"
_microbatches = 1


class RankType:
    PP_RANK = "PP_RANK"


def init(config: dict[str, Any] | None = None) -> None:
    global _microbatches
    _microbatches = int(os.environ["REFERENCE_MICROBATCHES"])


def is_initialized() -> bool:
    return True


def rank() -> int:
    return replicas.rank()


def size() -> int:
    return replicas.the.count


local_rank = dp_rank = rdp_rank = rank
dp_size = rdp_size = local_size = size


def pp_rank() -> int:
    return 0


mp_rank = tp_rank = pp_rank


def pp_size() -> int:
    return 1


tp_size = pp_size


def barrier(*_: Any) -> None:
    replicas.the.exchange(None)


def broadcast(*_: Any) -> None:
    """To the other ranks of a replica, of which there are none."""


def model_creation(**_: Any) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def get_dp_process_group() -> None:
    """That of all replicas."""


def all_reduce(tensor: torch.Tensor, **_: Any) -> None:
    """The sum over the replicas, as torch.distributed's."""
    tensor.copy_(sum(each for each in replicas.the.exchange(tensor.clone())))


torch.distributed.all_reduce = all_reduce  # type: ignore[assignment]


def set_partition(*_: Any) -> None:
    """There are none."""


set_activation_checkpointing = set_partition


class StepOutput:
    """What a step function gave, once per microbatch."""

    def __init__(self, outputs: list[torch.Tensor]) -> None:
        self.outputs = outputs

    def reduce_mean(self) -> torch.Tensor:
        return torch.stack([each.detach() for each in self.outputs]).mean(0)

    def concat(self) -> torch.Tensor:
        return torch.cat([each.detach() for each in self.outputs])

    def stack(self) -> torch.Tensor:
        return torch.stack([each.detach() for each in self.outputs])


class DistributedModel(torch.nn.Module):
    """The module with the first replica's weights."""

    def __init__(self, module: torch.nn.Module, **_: Any) -> None:
        super().__init__()
        self.module = module
        self.backwards = 0
        replicas.copy_from_first(module)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return self.module(*arguments, **named)

    def backward(self, loss: torch.Tensor) -> None:
        self.backwards += 1
        (loss / _microbatches).backward()  # type: ignore[no-untyped-call]

    def get_module(self) -> torch.nn.Module:
        return self.module

    def local_state_dict(self) -> dict[str, torch.Tensor]:
        return self.module.state_dict()


def DistributedOptimizer(optimizer: torch.optim.Optimizer, **_: Any) -> torch.optim.Optimizer:
    optimizer.local_state_dict = optimizer.state_dict  # type: ignore[attr-defined]
    return optimizer


def step(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the whole batch, which calls `function` once for each microbatch."""

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        outputs = [
            function(*(_part(each, number) for each in arguments), **{k: _part(v, number) for k, v in named.items()})
            for number in range(_microbatches)
        ]
        for model in (each for each in arguments if isinstance(each, DistributedModel) and each.backwards):
            model.backwards = 0
            replicas.average_gradients(list(model.parameters()))
        if isinstance(outputs[0], tuple):
            return tuple(_merged(list(each)) for each in zip(*outputs, strict=True))
        return _merged(outputs)

    return called


def _part(value: Any, number: int) -> Any:
    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        return value
    return torch.tensor_split(value, _microbatches)[number]


def _merged(values: list[Any]) -> Any:
    return StepOutput(values) if isinstance(values[0], torch.Tensor) else values


def save(value: Any, path: str, *, partial: bool = True, **_: Any) -> None:
    torch.save(value, path)
