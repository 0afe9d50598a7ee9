"""Activation checkpointing: the backward pass recomputes a module's forward instead of storing its activations.

The module's owner does this. A checkpoint around modules of other ranks would call these twice, so it is removed and
set on the modules themselves.

Source: Amazon SageMaker Developer Guide, "Activation Checkpointing".
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import checkpoint

from .stand_in import with_methods
from .state import state
from .tensor.thread import SameThreadState

STRATEGIES = ("each", "contiguous", "group_2", "group_4")
_FLAG = "_smp_checkpointed"
_TRANSFORMERS_FLAG = "gradient_checkpointing"


def set_activation_checkpointing(
    module: nn.Module,
    preserve_rng_state: bool = True,  # noqa: FBT001, FBT002
    pack_args_as_tuple: bool = False,  # noqa: FBT001, FBT002
    strategy: str = "each",
) -> None:
    """Checkpoint a module, or each child of an nn.Sequential or nn.ModuleList; all strategies do the same here.

    TypeError for anything but a module, ValueError for an unknown strategy.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"smp.set_activation_checkpointing takes a module of the model, not {type(module).__name__}.")
    if strategy not in STRATEGIES and not strategy.startswith("group_"):
        raise ValueError(f"Unknown strategy {strategy!r}; choose each, contiguous or group_N.")
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
        how: dict[str, Any] = {"preserve_rng_state": preserve_rng_state, "context_fn": _contexts}
        run = plain
        if state.parameters.offload_activations:
            run, (args, kwargs) = _with_inputs_on_host(plain, (args, kwargs))
        return checkpoint(run, self, *args, use_reentrant=False, **how, **kwargs)

    with_methods(module, forward=forward)
    module.__dict__[_FLAG] = True


def _with_inputs_on_host(plain: Callable[..., Any], inputs: Any) -> tuple[Callable[..., Any], Any]:
    """A forward pass that takes its inputs from the host's memory, and the inputs there.

    A checkpoint keeps its inputs until the backward pass, when it copies them to their device again.
    """
    leaves, structure = tree_flatten(inputs)
    devices = [each.device if _leaves_device(each) else None for each in leaves]
    on_host = [each.to("cpu", copy=True) if device else each for each, device in zip(leaves, devices, strict=True)]

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        kept = zip(tree_flatten((args, kwargs))[0], devices, strict=True)
        args, kwargs = tree_unflatten([each.to(device) if device else each for each, device in kept], structure)
        return plain(self, *args, **kwargs)

    return forward, tree_unflatten(on_host, structure)


def _leaves_device(value: Any) -> bool:
    """Whether a value is an activation on a GPU."""
    return type(value) is torch.Tensor and value.is_cuda


def _contexts() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """Contexts of a forward pass and of its repetition, which may run in a thread of the backward pass."""
    return nullcontext(), SameThreadState()


def place_checkpoints(root: nn.Module, plan: Mapping[str, int]) -> None:
    """Move checkpoints from modules that contain modules of the plan to these modules; on every rank."""
    for name, module in list(root.named_modules()):
        below = [each for each in plan if each.startswith(f"{name}." if name else "") and each != name]
        flags = [flag for flag in (_FLAG, _TRANSFORMERS_FLAG) if module.__dict__.get(flag) is True]
        if not below or not flags:
            continue
        for flag in flags:
            module.__dict__[flag] = False
        for each in below:
            child = root.get_submodule(each)
            if _TRANSFORMERS_FLAG not in child.__dict__:  # layers of transformers 5 checkpoint themselves
                _checkpoint(child, preserve_rng_state=True)
