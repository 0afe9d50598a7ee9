"""Stand-ins for modules and parameters of other ranks.

Modules and parameters stay the same objects, because scripts and optimizers refer to them; only their class changes. A
module's stand-in calls the owner; hooks and gradient checkpointing run there. A parameter's stand-in has a shape, and
raises if its values are needed.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from .delayed import give_values

AskOwner = Callable[[tuple[Any, ...], dict[str, Any]], Any]


class RemoteParameter(nn.Parameter):
    """A parameter of another rank's partition: it has a shape but never a gradient. label: its name and partition."""

    label: str

    def __repr__(self) -> str:  # type: ignore[override]  # torch's has an argument
        return f"{self.label} {tuple(self.shape)}"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__", "__delete__"):
            name = getattr(getattr(func, "__self__", None), "__name__", "")
        if name not in _ANSWERED:
            parameters = [each for each in tree_leaves((args, kwargs)) if isinstance(each, RemoteParameter)]
            raise RuntimeError(
                f"The values of {parameters[0].label}, are not on this rank, which has only its shape ({name}); call "
                "state_dict() or local_parameters() of smp.DistributedModel, not of the wrapped module, and use a "
                "parameter only in its own module's forward."
            )
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


_ANSWERED = {
    "shape", "size", "dim", "ndim", "numel", "nelement", "dtype", "device", "layout", "requires_grad", "requires_grad_",
    "grad", "is_leaf", "is_floating_point", "is_complex", "is_cuda", "is_cpu", "is_meta", "is_sparse", "is_quantized",
    "element_size", "itemsize", "nbytes", "__hash__", "__len__", "grad_fn", "names", "is_nested", "is_mkldnn", "is_xla",
    "is_contiguous", "stride", "storage_offset", "is_inference",
}  # fmt: skip


def offload_parameter(parameter: nn.Parameter, label: str) -> None:
    """Free a parameter's memory and keep its shape. label: its name and partition, for errors."""
    parameter.grad = None
    give_values(parameter, torch.empty(1, dtype=parameter.dtype, device=parameter.device).expand(parameter.shape))
    parameter.__class__ = RemoteParameter
    parameter.__dict__["label"] = label


def is_remote_parameter(parameter: torch.Tensor) -> bool:
    """Whether another rank holds a parameter."""
    return isinstance(parameter, RemoteParameter)


def local_parameters(named: Mapping[str, Any]) -> list[nn.Parameter]:
    """The parameters that this rank holds. named: modules and parameters by name."""
    return [each for each in named.values() if isinstance(each, nn.Parameter) and not is_remote_parameter(each)]


def with_methods(module: nn.Module, **methods: Callable[..., Any]) -> None:
    """Replace methods of one module, by giving it a subclass."""
    base = type(module)
    more = {"__module__": base.__module__, "__qualname__": base.__qualname__, **methods}
    module.__class__ = type(base.__name__, (base,), more)


def redirect_module(module: nn.Module, ask: AskOwner) -> None:
    """Redirect the module's calls to its owner."""

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return ask(args, kwargs)

    with_methods(module, __call__=call, forward=call)


Run = tuple[tuple[str, ...], int]
"""Names of consecutive children on one partition, and their owner."""


def runs(names: list[str], owners: list[int]) -> list[Run]:
    """Group consecutive names with the same owner; pure."""
    grouped: list[Run] = []
    for name, owner in zip(names, owners, strict=True):
        if grouped and grouped[-1][1] == owner:
            grouped[-1] = ((*grouped[-1][0], name), owner)
        else:
            grouped.append(((name,), owner))
    return grouped


def call_in_runs(sequential: nn.Sequential, grouped: list[Run], ask: Callable[[Run, Any], Any]) -> None:
    """Make an nn.Sequential on partition 0 call each run of remote children with one request."""

    def forward(self: nn.Sequential, value: Any) -> Any:
        children = self._modules
        for names, owner in grouped:
            if owner:
                value = ask((names, owner), value)
            else:
                for name in names:
                    value = children[name](value)
        return value

    with_methods(sequential, forward=forward)


def can_run_at_once(module: nn.Module) -> bool:
    """Whether a module only calls its children in order."""
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward
