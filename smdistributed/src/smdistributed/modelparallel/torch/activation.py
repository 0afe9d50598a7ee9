"""Activation checkpointing: a module's forward runs again in the backward pass instead of keeping what it computed.

It happens at the module's owner. A checkpoint around modules of other ranks would ask these twice, so on the rank that
runs the step it is taken off there, and put onto those modules at their owners.

Source: Amazon SageMaker Developer Guide, "Activation Checkpointing".
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from .stand_in import with_methods

STRATEGIES = ("each", "contiguous", "group_2", "group_4")
_FLAG = "_smp_checkpointed"
_OF_TRANSFORMERS = "gradient_checkpointing"


def set_activation_checkpointing(
    module: nn.Module,
    preserve_rng_state: bool = True,  # noqa: FBT001, FBT002
    pack_args_as_tuple: bool = False,  # noqa: FBT001, FBT002
    strategy: str = "each",
) -> None:
    """Checkpoint a module, or each child of an nn.Sequential: of the strategies, all do that here.

    TypeError for anything but a module, ValueError for an unknown strategy.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"smp.set_activation_checkpointing takes a module of the model, not {type(module).__name__}.")
    if strategy not in STRATEGIES and not strategy.startswith("group_"):
        raise ValueError(f"strategy {strategy!r} is not there; choose each, contiguous or group_N.")
    for each in module if isinstance(module, nn.Sequential | nn.ModuleList) else [module]:
        _checkpoint(each, preserve_rng_state=preserve_rng_state)


def _checkpoint(module: nn.Module, *, preserve_rng_state: bool) -> None:
    if module.__dict__.get(_FLAG) is not None:
        module.__dict__[_FLAG] = True
        return
    plain = type(module).forward

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if not (self.__dict__[_FLAG] and self.training and torch.is_grad_enabled()):
            return plain(self, *args, **kwargs)
        return checkpoint(plain, self, *args, use_reentrant=False, preserve_rng_state=preserve_rng_state, **kwargs)

    with_methods(module, forward=forward)
    module.__dict__[_FLAG] = True


def place_checkpoints(root: nn.Module, plan: Mapping[str, int]) -> None:
    """Take checkpoints off what holds modules of a plan, and put them onto these; every rank does it."""
    for name, module in list(root.named_modules()):
        below = [each for each in plan if each.startswith(f"{name}." if name else "") and each != name]
        flags = [flag for flag in (_FLAG, _OF_TRANSFORMERS) if module.__dict__.get(flag) is True]
        if not below or not flags:
            continue
        for flag in flags:
            module.__dict__[flag] = False
        for each in below:
            child = root.get_submodule(each)
            if _OF_TRANSFORMERS not in child.__dict__:  # transformers 5's layers see to themselves
                _checkpoint(child, preserve_rng_state=True)
