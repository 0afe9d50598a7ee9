"""Splits the backward pass of a server: gradients of inputs first, those of linear layers' weights when it has time.

The rank before waits for the gradients of inputs only. The idea is that of zero bubble pipelines (Qi et al. 2023,
https://arxiv.org/abs/2401.10241). The weights' gradients follow when no request waits, at the latest when the
microbatch ends. Until then the inputs and the outputs' gradients of its linear layers stay in memory.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from ..parameters import ModelParallelParameters, ParameterError
from .stand_in import with_methods
from .tensor.layouts import is_transposed

VARIABLE = "SMP_SPLIT_BACKWARD"
"""Of the environment: 1 splits backward passes. It is berth's own; AWS's library does not have it."""

Later = Callable[[], None]


def split_requested(environ: Mapping[str, str], parameters: ModelParallelParameters) -> bool:
    """Whether to split backward passes; pure. ParameterError for another value, or with deterministic_server."""
    value = environ.get(VARIABLE) or "0"
    if value not in ("0", "1"):
        raise ParameterError((f"{VARIABLE} is {value!r}; set it to 1 or 0.",))
    if value == "1" and parameters.deterministic_server:
        raise ParameterError(
            (f"{VARIABLE} changes the order in which gradients are summed; set it to 0 with deterministic_server.",)
        )
    return value == "1"


class LateWeights:
    """Changes linear layers of modules, GPT-2's Conv1D too, so that gradients of their weights can come later.

    microbatch: the one that is computed at the moment; any thread of a backward pass may ask for it.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self.microbatch = 0
        self._later: dict[int, list[Later]] = {}
        for module in {id(each): each for root in modules for each in root.modules()}.values():
            if _is_linear(module):
                with_methods(module, forward=self._forward_of(type(module).forward))

    def begin(self) -> None:
        """Forget what a failed step left."""
        self._later.clear()

    def compute_one(self, microbatch: int | None = None) -> bool:
        """Compute the oldest gradients that are left, of one microbatch or of all. False if there are none."""
        for waiting in self._later.values() if microbatch is None else [self._later.get(microbatch)]:
            if waiting:
                waiting.pop(0)()
                return True
        return False

    def _forward_of(self, plain: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def forward(layer: nn.Module, *args: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor:
            parameters = [each for each in (layer.weight, layer.bias) if each is not None]
            if kwargs or not torch.is_grad_enabled() or not all(map(_is_late, parameters)):
                return plain(layer, *args, **kwargs)
            later = self._later.setdefault(self.microbatch, [])
            values = *args, layer.weight, layer.bias, partial(plain, layer), later
            outputs: torch.Tensor = _Linear.apply(*values)  # type: ignore[no-untyped-call]
            return outputs

        return forward


def _is_linear(module: nn.Module) -> bool:
    forward = type(module).forward
    return forward is nn.Linear.forward or (is_transposed(module) and forward.__qualname__ == "Conv1D.forward")


def _is_late(parameter: Any) -> bool:
    """Whether a parameter's gradient can come later: nothing of the script waits for it."""
    return (
        isinstance(parameter, nn.Parameter)
        and parameter.requires_grad
        and not parameter._backward_hooks
        and not getattr(parameter, "_post_accumulate_grad_hooks", None)
    )


class _Linear(torch.autograd.Function):
    """A linear layer whose backward pass returns the gradient of the input only. plain: its forward pass."""

    @staticmethod
    def forward(ctx: Any, inputs: Any, weight: Any, bias: Any, plain: Any, later: list[Later]) -> Any:
        outputs = plain(inputs)
        # Under autocast the outputs have another type, and the gradients are computed in that.
        ctx.save_for_backward(inputs.to(outputs.dtype))
        # Activation checkpoints return a copy of what is saved, which has no .grad.
        ctx.weight, ctx.bias, ctx.later, ctx.input_dtype = weight, bias, later, inputs.dtype
        ctx.transposed = is_transposed(plain.args[0])
        return outputs

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (inputs,) = ctx.saved_tensors
        ctx.later.append(partial(_add_gradients, ctx.weight, ctx.bias, _Rows(inputs, gradient, ctx.transposed)))
        if not ctx.needs_input_grad[0]:
            return None, None, None, None, None
        matrix = ctx.weight.to(gradient.dtype)
        back = gradient @ (matrix.t() if ctx.transposed else matrix)
        return back.to(ctx.input_dtype), None, None, None, None


class _Rows(NamedTuple):
    """Inputs and the outputs' gradients of one call."""

    inputs: torch.Tensor
    gradients: torch.Tensor
    transposed: bool


@torch.no_grad()
def _add_gradients(weight: nn.Parameter, bias: nn.Parameter | None, rows: _Rows) -> None:
    inputs, gradients = (each.reshape(-1, each.shape[-1]) for each in rows[:2])
    _add(weight, inputs.t() @ gradients if rows.transposed else gradients.t() @ inputs)
    if bias is not None:
        _add(bias, gradients.sum(0))


def _add(parameter: nn.Parameter, gradient: torch.Tensor) -> None:
    gradient = gradient.to(parameter.dtype)
    parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
