"""State dicts of a model that is spread over ranks, and helpers that its optimizer's state dicts use too."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from .gathering import gathered
from .groups import PP_GROUP
from .stand_in import is_remote_parameter

IS_PARTIAL = "_smp_is_partial"
"""The documented key that marks a state dict of one rank's part."""
_EXTRA_STATE = "_extra_state"  # torch's name for a module's state besides tensors


def entries(module: nn.Module) -> dict[str, Any]:
    """A module's state dict. It includes parameters of other ranks, which have no values here.

    A tensor with several names stays one object, so that it is sent and saved once.
    """
    values = module.state_dict(keep_vars=True)
    detached = {
        id(each): each if is_remote_parameter(each) else each.detach()
        for each in values.values()
        if isinstance(each, torch.Tensor)
    }
    return {name: detached.get(id(each), each) for name, each in values.items()}


def whole(local: Mapping[str, Any], order: Sequence[str], to: Sequence[int] | None) -> "OrderedDict[str, Any]":
    """The entries of all partitions on the CPU, in this order; empty on ranks that are not in `to` (default: all).

    RuntimeError if an entry is missing.
    """
    parts = gathered(dict(local), PP_GROUP, "model.state_dict()", to)
    if parts is None:
        return OrderedDict()
    together = {name: value for part in parts for name, value in part.items()}
    if missing := [name for name in order if name not in together]:
        raise RuntimeError(f"No rank holds {missing[0]}; this is an error of the model parallel library.")
    return OrderedDict((name, together[name]) for name in order)


def load(
    module: nn.Module, states: Mapping[str, Any], is_local: Callable[[str], bool], *, strict: bool
) -> "nn.modules.module._IncompatibleKeys":
    """Load this rank's entries. RuntimeError for wrong shapes and, if `strict`, for missing or unknown names."""
    own = module.state_dict(keep_vars=True)
    missing, unknown = [name for name in own if name not in states], [name for name in states if name not in own]
    tensors = {name: each for name, each in own.items() if name in states and not name.endswith(_EXTRA_STATE)}
    wrong = [
        f"{name} is {tuple(states[name].shape)}, not {tuple(each.shape)}"
        for name, each in tensors.items()
        if states[name].shape != each.shape
    ]
    problems = [f"missing: {', '.join(missing)}"] * bool(missing) + [f"unknown: {', '.join(unknown)}"] * bool(unknown)
    if wrong or (strict and problems):
        raise RuntimeError(
            f"The state dict does not fit {type(module).__name__} ({'; '.join(problems * strict + wrong)}): "
            "load a state dict of this model; a partial one needs the number of partitions that it was saved with."
        )
    with torch.no_grad():
        for name in own:
            if name in tensors and is_local(name):
                tensors[name].copy_(states[name])
            elif name in states and is_local(name):
                module.get_submodule(name.rpartition(".")[0]).set_extra_state(states[name])
    return nn.modules.module._IncompatibleKeys(missing, unknown)
