"""What stands where a module or a parameter is another rank's.

Modules and parameters keep their object, for scripts and optimizers hold them; their class changes. A stand-in for a
module asks its owner, hooks and gradient checkpointing included, for these run where the module runs. One for a
parameter answers for its shape and refuses all that needs its values.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

AskOwner = Callable[[tuple[Any, ...], dict[str, Any]], Any]


class AwayParameter(nn.Parameter):
    """A parameter of another rank's partition: it has a shape, and never a gradient. `said`: its name and place."""

    said: str

    def __repr__(self) -> str:  # type: ignore[override]  # torch's wants contents
        return f"{self.said} {tuple(self.shape)}"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__", "__delete__"):
            name = getattr(getattr(func, "__self__", None), "__name__", "")
        if name not in _ANSWERED:
            found = [each for each in tree_leaves((args, kwargs)) if isinstance(each, AwayParameter)]
            raise RuntimeError(
                f"The values of {found[0].said}, were asked for on another rank ({name}), which has its shape only; "
                "call state_dict() or local_parameters() of smp.DistributedModel, not of the module in it, and use a "
                "parameter in its own module's forward only."
            )
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


_ANSWERED = {
    "shape", "size", "dim", "ndim", "numel", "nelement", "dtype", "device", "layout", "requires_grad", "requires_grad_",
    "grad", "is_leaf", "is_floating_point", "is_complex", "is_cuda", "is_cpu", "is_meta", "is_sparse", "is_quantized",
    "element_size", "itemsize", "nbytes", "__hash__", "__len__", "grad_fn", "names", "is_nested", "is_mkldnn", "is_xla",
    "is_contiguous", "stride", "storage_offset", "is_inference",
}  # fmt: skip


def send_parameter_away(parameter: nn.Parameter, said: str) -> None:
    """Free a parameter's memory, and leave its shape. `said`: what an error calls it."""
    parameter.grad = None
    parameter.data = torch.empty(1, dtype=parameter.dtype, device=parameter.device).expand(parameter.shape)
    parameter.__class__ = AwayParameter
    parameter.__dict__["said"] = said


def is_away(parameter: torch.Tensor) -> bool:
    """Whether another rank holds a parameter."""
    return isinstance(parameter, AwayParameter)


def local_parameters(named: Mapping[str, Any]) -> list[nn.Parameter]:
    """Those that this rank holds, of modules and parameters by name."""
    return [each for each in named.values() if isinstance(each, nn.Parameter) and not is_away(each)]


def with_methods(module: nn.Module, **methods: Callable[..., Any]) -> None:
    """Change the class of one object, by one that differs in these methods only."""
    base = type(module)
    more = {"__module__": base.__module__, "__qualname__": base.__qualname__, **methods}
    module.__class__ = type(base.__name__, (base,), more)


def send_module_away(module: nn.Module, ask: AskOwner) -> None:
    """From now on a call of the module asks its owner."""

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return ask(args, kwargs)

    with_methods(module, __call__=call, forward=call)


Run = tuple[tuple[str, ...], int]
"""Names of children that follow each other on one partition, and that partition."""


def runs(names: list[str], owners: list[int]) -> list[Run]:
    """Neighbours with one owner together; pure."""
    found: list[Run] = []
    for name, owner in zip(names, owners, strict=True):
        if found and found[-1][1] == owner:
            found[-1] = ((*found[-1][0], name), owner)
        else:
            found.append(((name,), owner))
    return found


def call_in_runs(sequential: nn.Sequential, found: list[Run], ask: Callable[[Run, Any], Any]) -> None:
    """From now on an nn.Sequential, which runs on partition 0, asks for a whole run of its children at once."""

    def forward(self: nn.Sequential, value: Any) -> Any:
        children = self._modules
        for names, owner in found:
            if owner:
                value = ask((names, owner), value)
            else:
                for name in names:
                    value = children[name](value)
        return value

    with_methods(sequential, forward=forward)


def can_run_at_once(module: nn.Module) -> bool:
    """Whether a module only calls its children in their order."""
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward
