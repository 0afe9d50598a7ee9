"""How a tensor is split over the ranks of a tensor parallel group; pure.

A split is a list of indexes per rank along one dimension, so it describes uneven heads and fused matrices too: three
heads on two ranks, or the query, key and value blocks of GPT-2's one matrix.
"""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ..delayed import give_values

_SPLIT = "_smp_split"
_DISTRIBUTED = "_smp_distributed"


class TensorSplit(NamedTuple):
    """The indexes of each rank along dimension `dim` of a whole tensor of this `shape`."""

    dim: int
    indexes: tuple[torch.Tensor, ...]
    shape: tuple[int, ...]

    def share(self, whole: torch.Tensor, rank: int) -> torch.Tensor:
        """A rank's part of the whole tensor, as a copy."""
        return whole.index_select(self.dim, self.indexes[rank].to(whole.device)).contiguous()

    def is_share(self, value: Any) -> bool:
        """Whether a value has the shape of a share: a parameter's share, or an optimizer's state for it."""
        if not isinstance(value, torch.Tensor) or value.dim() != len(self.shape):
            return False
        others = [size for place, size in enumerate(value.shape) if place != self.dim]
        whole = [size for place, size in enumerate(self.shape) if place != self.dim]
        return others == whole and value.shape[self.dim] in {len(each) for each in self.indexes}

    def whole(self, shares: Sequence[torch.Tensor]) -> torch.Tensor:
        """The whole tensor from the parts of all ranks."""
        made = torch.empty(self.shape, dtype=shares[0].dtype, device=shares[0].device)
        for index, share in zip(self.indexes, shares, strict=True):
            made.index_copy_(self.dim, index.to(made.device), share)
        return made


def split_of(parameter: Any) -> TensorSplit | None:
    """How a parameter is split; None: every rank of the group has the whole."""
    found: TensorSplit | None = getattr(parameter, _SPLIT, None)
    return found


def keep_share(parameter: torch.nn.Parameter, dim: int, indexes: Sequence[torch.Tensor], rank: int) -> None:
    """Replace a parameter's data by a rank's share; once, because several modules may hold the parameter."""
    if split_of(parameter) is None:
        split = TensorSplit(dim, tuple(indexes), tuple(parameter.shape))
        give_values(parameter, split.share(parameter.detach(), rank))
        setattr(parameter, _SPLIT, split)


def copy_split(source: torch.Tensor, target: torch.Tensor) -> None:
    """Note that the target, which takes the place of the source, is split like it."""
    if (split := split_of(source)) is not None:
        setattr(target, _SPLIT, split)


def mark_distributed(module: torch.nn.Module) -> None:
    """Note that a module is split over the group."""
    module.__dict__[_DISTRIBUTED] = True


def is_distributed(module: torch.nn.Module) -> bool:
    """Whether a module is split over the group. Its submodules stay together on one partition."""
    return _DISTRIBUTED in module.__dict__


def even_ranges(count: int, ranks: int) -> list[range]:
    """Consecutive ranges of `count` things, one per rank, as even as possible."""
    ends = [count * place // ranks for place in range(ranks + 1)]
    return [range(begin, end) for begin, end in itertools.pairwise(ends)]


def feature_indexes(units: int, ranks: int, width: int = 1, blocks: int = 1) -> tuple[torch.Tensor, ...]:
    """The features of each rank if its units, such as heads, have `width` features each.

    blocks: the number of blocks of units that follow each other in the matrix; a rank gets the same units of each.
    """
    starts = range(0, blocks * units * width, units * width)
    return tuple(
        torch.cat([torch.arange(each.start * width, each.stop * width) + start for start in starts])
        for each in even_ranges(units, ranks)
    )
