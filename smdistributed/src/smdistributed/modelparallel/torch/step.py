"""`@smp.step`: the function runs once for each microbatch of its batch.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_common_api.rst.
"""

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from .amp import mixed_precision
from .state import state

_REMEDY = "reduce_mean() makes a loss, concat() logits"


class StepOutput:
    """A tensor that a step function returned, for each microbatch; `outputs` lists them."""

    def __init__(self, outputs: Sequence[torch.Tensor]) -> None:
        self.outputs = list(outputs)

    def __repr__(self) -> str:
        return f"<StepOutput of {len(self.outputs)} microbatches, of which {_REMEDY}>"

    def __getattr__(self, name: str) -> Any:
        """What a tensor has and this has not, such as item(); AttributeError that says what to call first."""
        if hasattr(torch.Tensor, name) and not name.startswith("__"):
            raise AttributeError(f"{name} is of one tensor, and a step gives one for each microbatch: {_REMEDY}.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __float__(self) -> float:
        raise TypeError(f"A step gives a tensor for each microbatch, and float() takes one: {_REMEDY}.")

    def reduce_mean(self) -> torch.Tensor:
        """Their mean, element by element; in float32 for whole numbers."""
        stacked = torch.stack(self.outputs)
        return (stacked if stacked.is_floating_point() or stacked.is_complex() else stacked.float()).mean(0)

    def reduce_sum(self) -> torch.Tensor:
        """Their sum, element by element."""
        return torch.stack(self.outputs).sum(0)

    def concat(self) -> torch.Tensor:
        """One after the other along the batch's dimension; numbers become a row."""
        return torch.cat([each.reshape(1) if each.dim() == 0 else each for each in self.outputs])

    def stack(self) -> torch.Tensor:
        """With a first dimension more: the microbatch."""
        return torch.stack(self.outputs)

    def detach(self) -> "StepOutput":
        """Without their graphs."""
        return StepOutput([each.detach() for each in self.outputs])

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.outputs[index]

    def __len__(self) -> int:
        return len(self.outputs)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(self.outputs)


def slice_of(value: Any, count: int, index: int, axis: int = 0) -> Any:
    """One of `count` equal parts of an argument along `axis`; pure. ValueError if it does not divide.

    Tensors, lists, tuples, sets and mappings of them, and what has a method smp_slice are split; all else stays whole.
    """
    if isinstance(value, torch.Tensor):
        if value.dim() == 0:
            return value
        if axis >= value.dim():
            raise ValueError(f"A tensor of {value.dim()} dimensions has no axis {axis}; correct input_split_axes.")
        if value.shape[axis] % count:
            raise ValueError(
                f"A batch of {value.shape[axis]} can't be split into {count} microbatches; choose a batch size that "
                "microbatches divides, and drop the last, smaller batch (drop_last=True)."
            )
        size = value.shape[axis] // count
        return value.narrow(axis, index * size, size)
    if hasattr(value, "smp_slice"):
        return value.smp_slice(count, index, axis)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(slice_of(each, count, index, axis) for each in value))
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(slice_of(each, count, index, axis) for each in value)
    if isinstance(value, MutableMapping):
        return _with_values(value, {name: slice_of(each, count, index, axis) for name, each in value.items()})
    return value


def _with_values(like: Any, values: dict[Any, Any]) -> Any:
    """A mapping of the same kind with other values; a dict where its kind does not allow that."""
    if type(like) is dict:
        return values
    try:
        made = copy.copy(like)
        for name, each in values.items():
            made[name] = each
    except Exception:  # a mapping of anybody's may refuse anything
        return values
    return made


def merged(outputs: Sequence[Any]) -> Any:
    """What a function returned for each microbatch, as one: tensors as StepOutput, other values as a list; pure."""
    first = outputs[0]
    if isinstance(first, torch.Tensor):
        return StepOutput(outputs)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(merged(each) for each in zip(*outputs, strict=True)))
    if isinstance(first, list | tuple):
        return type(first)(merged(each) for each in zip(*outputs, strict=True))
    if isinstance(first, MutableMapping):
        return _with_values(first, {name: merged([each[name] for each in outputs]) for name in first})
    if first is None and all(each is None for each in outputs):
        return None
    return list(outputs)


def step(
    function: Callable[..., Any] | None = None,
    non_split_inputs: Sequence[str] | None = None,
    input_split_axes: Mapping[str, int] | None = None,
    detach_outputs: bool = True,  # noqa: FBT001, FBT002
    **accepted: Any,
) -> Any:
    """Decorate the function of a forward and backward pass, or of a forward pass alone.

    `non_split_inputs`: names of arguments that stay whole; `input_split_axes`: the batch's axis by name, 0 for others;
    `detach_outputs`: returned tensors lose their graphs. Works with and without parentheses.
    """
    if function is None:
        return functools.partial(
            step, non_split_inputs=non_split_inputs, input_split_axes=input_split_axes, detach_outputs=detach_outputs
        )
    signature = inspect.signature(function)
    whole, axes = set(non_split_inputs or ()), dict(input_split_axes or {})
    if wrong := (whole | axes.keys()) - signature.parameters.keys():
        raise ValueError(f"smp.step: {function.__name__} has no argument {sorted(wrong)[0]!r}; correct the name.")

    def arguments(bound: inspect.BoundArguments, count: int, index: int) -> inspect.BoundArguments:
        parts = {
            name: value if name in whole else slice_of(value, count, index, axes.get(name, 0))
            for name, value in bound.arguments.items()
        }
        return inspect.BoundArguments(signature, parts)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        model = _model_for(function)
        bound, count = signature.bind(*args, **kwargs), state.parameters.microbatches

        def body(part: inspect.BoundArguments) -> Any:
            with mixed_precision():
                found = function(*part.args, **part.kwargs)
            return tree_map(_detached, found) if detach_outputs else found

        def bodies() -> list[Callable[[], Any]]:
            parts = [arguments(bound, count, index) for index in range(count)]
            return [functools.partial(body, part) for part in parts]

        return merged(model.run_step(function.__qualname__, bodies))

    return wrapper


def is_tracing() -> bool:
    """Whether the step function runs to be traced, and not to train: never, as models are not traced."""
    return False


def _model_for(function: Callable[..., Any]) -> Any:
    if state.model is None:
        raise RuntimeError(
            f"The step {function.__name__} was called and no model is wrapped; give the model to smp.DistributedModel, "
            "and what that returns to the step."
        )
    if state.model.in_step:
        raise RuntimeError(
            f"The step {function.__name__} was called within a step; call it after that one, or without @smp.step."
        )
    return state.model


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value
