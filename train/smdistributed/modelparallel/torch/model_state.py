"""State dicts of a model that is spread over ranks."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from .groups import CommGroup, allgather
from .partition import owner
from .stand_in import is_away

IS_PARTIAL = "_smp_is_partial"
owner_of = owner


def entries(module: nn.Module) -> dict[str, Any]:
    """A module's state dict, where it may hold other ranks' parameters, which have no values."""
    found = module.state_dict(keep_vars=True)
    return {
        name: each if not isinstance(each, torch.Tensor) or is_away(each) else each.detach()
        for name, each in found.items()
    }


def on_cpu(values: Mapping[str, Any]) -> dict[str, Any]:
    """With all tensors on the CPU."""
    return {name: each.cpu() if isinstance(each, torch.Tensor) else each for name, each in values.items()}


def gathered(local: Mapping[str, Any], order: Sequence[str], group: CommGroup) -> "OrderedDict[str, Any]":
    """All ranks' parts together, in this order. RuntimeError where one is missing, which would be lost silently."""
    whole: dict[str, Any] = {}
    for part in allgather(on_cpu(local), group):
        whole.update(part)
    if missing := [name for name in order if name not in whole]:
        raise RuntimeError(f"No rank holds {missing[0]}; this is an error of the model parallel library.")
    return OrderedDict((name, whole[name]) for name in order)


def load(
    module: nn.Module, given: Mapping[str, Any], is_local: Callable[[str], bool], *, strict: bool
) -> "nn.modules.module._IncompatibleKeys":
    """Copy what is this rank's. RuntimeError for missing and unknown names if `strict`, and for other shapes."""
    own = module.state_dict(keep_vars=True)
    missing, unknown = [name for name in own if name not in given], [name for name in given if name not in own]
    wrong = [
        f"{name} is {tuple(given[name].shape)}, not {tuple(each.shape)}"
        for name, each in own.items()
        if name in given and isinstance(each, torch.Tensor) and given[name].shape != each.shape
    ]
    problems = [f"missing: {', '.join(missing)}"] * bool(missing) + [f"unknown: {', '.join(unknown)}"] * bool(unknown)
    if wrong or (strict and problems):
        raise RuntimeError(
            f"The state dict does not fit {type(module).__name__} ({'; '.join(problems * strict + wrong)}); load "
            "one of this model, or with strict=False."
        )
    with torch.no_grad():
        for name, each in own.items():
            if name in given and is_local(name) and isinstance(each, torch.Tensor):
                each.copy_(given[name])
    return nn.modules.module._IncompatibleKeys(missing, unknown)
