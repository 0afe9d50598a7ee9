"""Whether all ranks wrap the same model. Another one would end in an error of gloo later, or train wrongly."""

import hashlib
from collections.abc import Mapping, Sequence

from torch import nn
from torch.nn.parameter import is_lazy

from .groups import WORLD, exchanged, size

Shapes = Mapping[str, str]
"""Name of a parameter → its shape and type."""

_CALL = "smp.DistributedModel()"


def require_same_model(module: nn.Module) -> None:
    """RuntimeError, on all ranks, if a rank's parameters have other names, shapes or types. Every rank calls it."""
    if size() == 1:
        return
    shapes = shapes_of(module)
    digest = hashlib.sha256(repr(shapes).encode()).hexdigest()
    if len(set(exchanged(digest, WORLD, _CALL))) > 1:
        raise RuntimeError(difference(exchanged(shapes, WORLD, _CALL)))


def shapes_of(module: nn.Module) -> Shapes:
    """Of each parameter, by all of its names."""
    named = module.named_parameters(remove_duplicate=False)
    return {name: "lazy" if is_lazy(each) else f"{tuple(each.shape)} {each.dtype}" for name, each in named}


def difference(by_rank: Sequence[Shapes]) -> str:
    """The first difference between two ranks; pure."""
    first = by_rank[0]
    other, shapes = next((rank, each) for rank, each in enumerate(by_rank) if list(each.items()) != list(first.items()))
    names = [name for name in {**first, **shapes} if first.get(name) != shapes.get(name)]
    where = f"The parameters of ranks 0 and {other} are in different orders."
    if names:
        here, there = (each.get(names[0], "missing") for each in (first, shapes))
        where = f"The parameter {names[0]} is {here} on rank 0 and {there} on rank {other}."
    return f"{where} Every rank must create the same model before it calls {_CALL}."
