"""Regions: the modules in which a rank computes on the batches of its whole tensor parallel group.

On entry the batches of all ranks are put together, on exit each rank gets the rows of its own. Inside, all ranks run
the same on the same tensors. With prescaled_batch they have one batch from the start, and a region changes nothing.

The region of a model of transformers is its base model, not each layer: what happens in there may depend on the data
(an attention mask without padding is left out), and must be the same on all ranks.
"""

import inspect
from collections.abc import Callable, MutableMapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from ..groups import tp_size
from ..remote import local
from ..stand_in import with_methods
from ..state import state
from ..step import with_values
from .exchange import exchanges
from .functions import OwnPart, Together
from .thread import in_region, region

_TOGETHER = "_smp_together"
"""Attribute of a tensor of one rank's rows: the tensor of the group's rows, and the version to which that belongs."""
_BATCHES = {
    "input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds", "pixel_values", "hidden_states",
    "position_embeddings",
}  # fmt: skip
"""Arguments whose first dimension is the batch, or 1, besides a module's first one."""


def make_region(module: nn.Module, name: str) -> None:
    """Put a region around a module's forward. Regions within regions do nothing."""
    plain: Callable[..., Any] = type(module).forward
    signature = inspect.signature(plain)
    first = list(signature.parameters)[1]

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if state.parameters.prescaled_batch:
            tensors = (each for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor))
            exchanges().note_batch(each for each in tensors if each.grad_fn is None)
        if state.parameters.prescaled_batch or in_region():
            return plain(self, *args, **kwargs)
        named = _named(signature.bind(self, *args, **kwargs).arguments)
        batches = {key: each for key, each in named.items() if key == first or key in _BATCHES}
        _refuse(name, named, batches)
        rows = _rows(batches)

        def enter(value: Any) -> Any:
            return _enter(value) if isinstance(value, torch.Tensor) and value.shape[:1] == (rows,) else value

        args, kwargs = _mapped(enter, (args, kwargs))
        with region():
            result = plain(self, *args, **kwargs)
        return _mapped(lambda value: _leave(value, rows), result)

    with_methods(module, forward=forward)


def _named(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, those of **kwargs by their own."""
    named: dict[str, Any] = {}
    for name, value in list(arguments.items())[1:]:
        named |= value if isinstance(value, dict) and name.endswith("kwargs") else {name: value}
    return named


def _refuse(module: str, named: dict[str, Any], batches: dict[str, Any]) -> None:
    """TypeError for a tensor of which it is not known whether it has the rows of the batch."""
    for name, value in named.items():
        if name not in batches and any(isinstance(each, torch.Tensor) for each in tree_leaves(value)):
            raise TypeError(
                f"{module or 'The model'} got a tensor in the argument {name}, and tensor parallelism does not know "
                "whether its rows belong to the batch; leave it out, or set prescaled_batch to true."
            )


def _rows(batches: dict[str, Any]) -> int:
    """The rows of this rank's batch: of the first tensor with more than one, else 1."""
    sizes = [each.shape[0] for each in tree_leaves(batches) if isinstance(each, torch.Tensor) and each.dim()]
    return next((size for size in sizes if size != 1), 1)


def _mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """Containers with `function` applied to the values, also in the outputs of older versions of transformers."""

    def leaf(value: Any) -> Any:
        if isinstance(value, MutableMapping):
            return with_values(value, {name: _mapped(function, each) for name, each in value.items()})
        return function(value)

    return tree_map(leaf, tree)


def _enter(value: torch.Tensor) -> torch.Tensor:
    value = local(value)
    known = value.__dict__.get(_TOGETHER)
    if known is not None and known[1] == value._version:
        return known[0]  # type: ignore[no-any-return]
    together: torch.Tensor = Together.apply(value)  # type: ignore[no-untyped-call]
    if not value.is_leaf:  # the same on all ranks; a script may keep a batch on one rank and not on another
        value.__dict__[_TOGETHER] = together, value._version
    return together


def _leave(value: Any, rows: int) -> Any:
    if not isinstance(value, torch.Tensor) or value.shape[:1] != (rows * tp_size(),):
        return value
    value = local(value)
    own: torch.Tensor = OwnPart.apply(value, rows)  # type: ignore[no-untyped-call]
    own.__dict__[_TOGETHER] = value, own._version
    return own
