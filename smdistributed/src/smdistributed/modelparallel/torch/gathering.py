"""Gathers the state of all ranks of a group, one tensor at a time.

A state may be larger than the memory that is left, and pickled objects need several times their size on every rank.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_map

from .groups import CommGroup, exchanged, group_ranks, members
from .state import state


@dataclass(frozen=True)
class _Slot:
    """The place of a tensor in a state that is sent without its tensors."""

    number: int


@dataclass(frozen=True)
class _Outline:
    """A tensor without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def empty(self) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype)


def gathered(part: Any, group: CommGroup, what: str, to: Sequence[int] | None = None) -> list[Any] | None:
    """The parts of all ranks of the group, with their tensors on the CPU; every rank of the group calls it.

    part: containers of tensors and small picklable objects. A tensor that occurs twice stays one object. what: the name
    of the call. to: the ranks in the group that get the parts (default: all); the others get None.
    """
    skeleton, tensors = without_tensors(part)
    outlines = [_Outline(tuple(each.shape), each.dtype) for each in tensors]
    everyone = exchanged((skeleton, outlines), group, what)
    ranks = group_ranks(group)
    me = ranks.index(dist.get_rank())
    receivers = range(len(ranks)) if to is None else to
    parts: list[Any] = []
    with state.watch.waiting(what, ranks), state.watch.explain_errors(ranks):
        for place, (other, others_outlines) in enumerate(everyone):
            received = []
            for number, outline in enumerate(others_outlines):
                own = tensors[number] if place == me else None
                received.append(_send(own, outline, place, receivers, group))
            parts.append(with_tensors(other, received) if me in receivers else None)
    return parts if me in receivers else None


def without_tensors(part: Any) -> tuple[Any, list[torch.Tensor]]:
    """Containers with numbers in the place of their tensors, and the tensors; pure.

    A tensor that occurs twice is taken once. Sparse and quantized ones stay, because their bytes are not their state.
    """
    tensors: list[torch.Tensor] = []
    numbers: dict[int, int] = {}

    def take(value: Any) -> Any:
        if not _is_plain(value):
            return value
        if id(value) not in numbers:
            numbers[id(value)] = len(tensors)
            tensors.append(value)
        return _Slot(numbers[id(value)])

    return tree_map(take, part), tensors


def with_tensors(skeleton: Any, tensors: Sequence[torch.Tensor | None]) -> Any:
    """The opposite of `without_tensors`."""
    return tree_map(lambda value: tensors[value.number] if isinstance(value, _Slot) else value, skeleton)


def _is_plain(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and not value.is_quantized


def _send(
    own: torch.Tensor | None, outline: _Outline, place: int, receivers: Sequence[int], group: CommGroup
) -> torch.Tensor | None:
    """One tensor, from its owner at `place` in the group to the receivers, of which each returns it.

    The others return None, because they would keep a copy of what their GPU holds.
    """
    ranks = group_ranks(group)
    me = ranks.index(dist.get_rank())
    if own is None and me not in receivers:
        return None
    value = outline.empty() if own is None else own.detach().cpu()
    if value.numel():
        data = value.contiguous().reshape(-1).view(torch.uint8)
        if len(receivers) == len(ranks):
            dist.broadcast(data, ranks[place], group=members(group).control)
        elif own is None:
            dist.recv(data, ranks[place], group=members(group).control)
        else:
            for receiver in receivers:
                if receiver != me:
                    dist.send(data, ranks[receiver], group=members(group).control)
    return value if me in receivers else None
