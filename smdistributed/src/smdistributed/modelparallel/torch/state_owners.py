"""The option shard_optimizer_state: each parameter has one owner among the ranks that hold the same values.

The owner has the parameter's optimizer state, updates the parameter and sends it to the others.

Source: SageMaker Python SDK, doc/api/training/smd_model_parallel_general.rst, shard_optimizer_state.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .gradients import BUCKET, buckets
from .groups import DP_GROUP, RDP_GROUP, CommGroup, members
from .state import Members, state
from .tensor.split import split_of

_STEP = "optimizer.step()"


def owners(sizes: Sequence[int], ranks: Sequence[int]) -> list[int]:
    """The owner of each parameter, with loads as even as possible: the largest first, to the least loaded; pure."""
    loads = dict.fromkeys(ranks, 0)
    found = [ranks[0]] * len(sizes)
    for place in sorted(range(len(sizes)), key=lambda each: -sizes[each]):
        found[place] = min(ranks, key=lambda rank: (loads[rank], rank))
        loads[found[place]] += sizes[place]
    return found


class StateOwners:
    """Who updates which of this rank's parameters. Ranks that hold the same parameters must list them in one order."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters: list[nn.Parameter] = []
        self._parts: list[tuple[Members, int, list[nn.Parameter]]] = []
        """Per group and owner, what it updates."""
        self._mine: set[int] = set()
        self.add(parameters)

    def add(self, parameters: Sequence[nn.Parameter]) -> None:
        """Choose the owners of further parameters."""
        self._parameters += parameters
        kinds: Mapping[bool, CommGroup] = {False: DP_GROUP, True: RDP_GROUP}
        for split, kind in kinds.items():
            group = members(kind)
            chosen = [each for each in parameters if bool(split_of(each)) == split]
            owner_of = owners([each.numel() for each in chosen], group.ranks)
            for rank in group.ranks:
                part = [each for each, owner in zip(chosen, owner_of, strict=True) if owner == rank]
                self._parts.append((group, rank, part))
                if rank == dist.get_rank():
                    self._mine.update(map(id, part))

    def knows(self, parameter: nn.Parameter) -> bool:
        """Whether a parameter has an owner."""
        return any(each is parameter for each in self._parameters)

    def owns(self, parameter: nn.Parameter) -> bool:
        """Whether this rank updates a parameter."""
        return id(parameter) in self._mine

    def update(self, step: Callable[[], Any]) -> Any:
        """Update what this rank owns by `step`, then exchange the updated parameters. Every rank calls it."""
        others = [(each, each.grad) for each in self._parameters if not self.owns(each)]
        for each, _ in others:
            each.grad = None
        try:
            result = step()
        finally:
            for each, gradient in others:
                each.grad = gradient
        for group, owner, part in self._parts:
            with state.watch.waiting(_STEP, group.ranks), state.watch.explain_errors(group.ranks):
                _send(group, owner, [each for each in part if each.requires_grad])
        return result


def _send(group: Members, owner: int, parameters: Sequence[nn.Parameter]) -> None:
    with torch.no_grad():
        for bucket in buckets(parameters, BUCKET):
            flat = torch.cat([each.detach().reshape(-1) for each in bucket])
            dist.broadcast(flat, owner, group=group.tensors)
            if owner != dist.get_rank():
                for each, values in zip(bucket, torch.split(flat, [each.numel() for each in bucket]), strict=True):
                    each.copy_(values.view(each.shape))
