"""Split one matrix: a linear module by its outputs or inputs, an embedding by its words; and an argument by heads.

The module keeps its object, its class and its parameters' names; a parameter's data becomes this rank's share.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from ..groups import tp_rank
from ..stand_in import with_methods
from .functions import AllColumns, Summed, shared
from .layouts import is_transposed
from .split import keep_share

Indexes = Sequence[torch.Tensor]


def split_columns(module: nn.Module, indexes: Indexes, *, all_columns: bool = False) -> None:
    """Each rank computes some of a linear module's outputs. all_columns: then each rank gets all of them."""
    outputs = tuple(indexes)
    _keep(module.weight, 1 if is_transposed(module) else 0, outputs)
    _keep(module.bias, 0, outputs)

    def forward(self: nn.Module, value: torch.Tensor) -> torch.Tensor:
        result = _linear(self, shared(value), self.bias)  # type: ignore[arg-type]
        return AllColumns.apply(result, outputs) if all_columns else result  # type: ignore[no-untyped-call]

    with_methods(module, forward=forward)


def split_rows(module: nn.Module, indexes: Indexes, *, whole_input: bool = False) -> None:
    """Each rank takes some of a linear module's inputs; the results are summed. whole_input: the rank gets them all."""
    _keep(module.weight, 0 if is_transposed(module) else 1, indexes)

    def forward(self: nn.Module, value: torch.Tensor) -> torch.Tensor:
        if whole_input:
            value = shared(value).index_select(-1, indexes[tp_rank()].to(value.device))
        total: torch.Tensor = Summed.apply(_linear(self, value, None))  # type: ignore[no-untyped-call]
        return total if self.bias is None else total + self.bias  # type: ignore[operator]

    with_methods(module, forward=forward)


def split_words(module: nn.Embedding, indexes: Indexes) -> None:
    """Each rank has the vectors of some consecutive words; those of others are 0 before the sum."""
    _keep(module.weight, 0, indexes)

    def forward(self: nn.Embedding, words: torch.Tensor) -> torch.Tensor:
        own = indexes[tp_rank()]
        first, count = int(own[0]), len(own)
        here = (words >= first) & (words < first + count)
        padding = self.padding_idx
        local_padding = padding - first if padding is not None and first <= padding < first + count else None
        vectors = F.embedding(torch.where(here, words - first, 0), self.weight, local_padding)
        return Summed.apply(vectors * here.unsqueeze(-1))  # type: ignore[no-untyped-call,no-any-return]

    with_methods(module, forward=forward)


def own_heads(module: nn.Module, argument: str, indexes: Indexes) -> None:
    """Each rank's module gets its heads of a keyword argument whose first dimension is the batch times all heads."""
    plain, heads = type(module).forward, sum(map(len, indexes))

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        value = kwargs[argument].unflatten(0, (-1, heads))
        kwargs[argument] = value.index_select(1, indexes[tp_rank()].to(value.device)).flatten(0, 1)
        return plain(self, *args, **kwargs)

    with_methods(module, forward=forward)


def _linear(module: nn.Module, value: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    weight: torch.Tensor = module.weight  # type: ignore[assignment]
    return F.linear(value, weight.t() if is_transposed(module) else weight, bias)


def _keep(parameter: object, dim: int, indexes: Indexes) -> None:
    if isinstance(parameter, nn.Parameter):
        keep_share(parameter, dim, indexes, tp_rank())
