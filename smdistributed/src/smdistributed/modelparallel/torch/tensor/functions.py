"""Operations with a gradient that exchange tensors with the tensor parallel group.

As in Megatron-LM, what every rank has whole and uses for a part of the result needs the sum of its gradients, and
partial results are summed. The loss of a rank is the mean over its own batch. So a gradient that leaves a region is
divided by the size of the group, and one that enters it multiplied: then the average over the ranks that hold the same
values is right for every parameter.

A function must not return a view of its input: if the input's attributes hold the view, they form a cycle through C++
that nothing collects.
"""

from typing import Any

import torch
import torch.nn.functional as F

from ..groups import tp_rank, tp_size
from ..remote import local
from .exchange import exchanges, own_part
from .split import TensorSplit


class Summed(torch.autograd.Function):
    """Partial results → their sum."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return exchanges().sum(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


class Shared(torch.autograd.Function):
    """What every rank has whole, for a computation of a part on each."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return exchanges().sum(gradients[0])


class Together(torch.autograd.Function):
    """A rank's batch → the batches of all ranks, one after the other."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        ctx.size = tensor.shape[0]
        return torch.cat(exchanges().gather(tensor))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0][own_part(ctx.size)] * tp_size()


class OwnPart(torch.autograd.Function):
    """The batches of all ranks → this rank's, of `size` rows."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, size: int) -> torch.Tensor:
        return tensor[own_part(size)].clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return torch.cat(exchanges().gather(gradients[0])) / tp_size(), None


class AllColumns(torch.autograd.Function):
    """This rank's columns of a result → those of all ranks, in the order of the whole matrix."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, indexes: tuple[torch.Tensor, ...]) -> torch.Tensor:
        ctx.indexes = indexes
        widths = [len(each) for each in indexes]
        parts = exchanges().gather(F.pad(tensor, (0, max(widths) - tensor.shape[-1])))
        split = TensorSplit(tensor.dim() - 1, indexes, (*tensor.shape[:-1], sum(widths)))
        return split.whole([part[..., :width] for part, width in zip(parts, widths, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0].index_select(-1, ctx.indexes[tp_rank()].to(gradients[0].device)), None


_SHARED = "_smp_shared"


def shared(tensor: torch.Tensor) -> torch.Tensor:
    """`Shared`, once per tensor: query, key and value then need one sum of gradients."""
    tensor = local(tensor)  # apply would take a stand-in for its values
    if not (tensor.requires_grad and torch.is_grad_enabled()):
        return tensor
    if tensor.is_leaf:  # its accumulated gradient would keep the result alive
        return Shared.apply(tensor)  # type: ignore[no-any-return,no-untyped-call]
    if _SHARED not in tensor.__dict__:
        tensor.__dict__[_SHARED] = Shared.apply(tensor)  # type: ignore[no-untyped-call]
    return tensor.__dict__[_SHARED]  # type: ignore[no-any-return]
