"""`@smp.step`: runs the function once per microbatch.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_common_api.rst.
"""

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from .amp import mixed_precision
from .state import state

_REMEDY = "reduce_mean() makes a loss, concat() logits"


class StepOutput:
    """The tensors that a step function returned, one per microbatch, in `outputs`."""

    def __init__(self, outputs: Sequence[torch.Tensor]) -> None:
        self.outputs = list(outputs)

    def __repr__(self) -> str:
        return f"<StepOutput of {len(self.outputs)} microbatches, of which {_REMEDY}>"

    def __getattr__(self, name: str) -> Any:
        """AttributeError; for an attribute of tensors, such as item(), with what to call first."""
        if hasattr(torch.Tensor, name) and not name.startswith("__"):
            raise AttributeError(f"{name} needs one tensor, and a step returns one per microbatch: {_REMEDY}.")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __float__(self) -> float:
        raise TypeError(f"float() needs one tensor, and a step returns one per microbatch: {_REMEDY}.")

    def reduce_mean(self) -> torch.Tensor:
        """The mean over the microbatches, element by element; float32 for integers."""
        stacked = torch.stack(self.outputs)
        return (stacked if stacked.is_floating_point() or stacked.is_complex() else stacked.float()).mean(0)

    def reduce_sum(self) -> torch.Tensor:
        """The sum over the microbatches, element by element."""
        return torch.stack(self.outputs).sum(0)

    def concat(self) -> torch.Tensor:
        """Concatenate along the first dimension; scalars become a vector."""
        return torch.cat([each.reshape(1) if each.dim() == 0 else each for each in self.outputs])

    def stack(self) -> torch.Tensor:
        """Stack along a new first dimension, the microbatch."""
        return torch.stack(self.outputs)

    def detach(self) -> "StepOutput":
        """A StepOutput of the detached tensors."""
        return StepOutput([each.detach() for each in self.outputs])

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.outputs[index]

    def __len__(self) -> int:
        return len(self.outputs)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(self.outputs)


def slice_of(value: Any, count: int, index: int, axis: int = 0) -> Any:
    """Part `index` of `count` equal parts of an argument along `axis`; pure. ValueError if it can't be split evenly.

    Splits tensors, containers of them (lists, tuples, sets, mappings) and objects with a method smp_slice; everything
    else stays whole.
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
        return with_values(value, {name: slice_of(each, count, index, axis) for name, each in value.items()})
    return value


def with_values(like: Any, values: dict[Any, Any]) -> Any:
    """A mapping of the same type with other values; a dict if the type does not allow that."""
    if type(like) is dict:
        return values
    try:
        mapping = copy.copy(like)
        for name, each in values.items():
            mapping[name] = each
    except Exception:  # a user's mapping type may raise anything
        return values
    return mapping


def merged(outputs: Sequence[Any]) -> Any:
    """Merge the results of the microbatches: tensors become a StepOutput, other values a list; pure."""
    first = outputs[0]
    if isinstance(first, torch.Tensor):
        return StepOutput(outputs)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(merged(each) for each in zip(*outputs, strict=True)))
    if isinstance(first, list | tuple):
        return type(first)(merged(each) for each in zip(*outputs, strict=True))
    if isinstance(first, MutableMapping):
        return with_values(first, {name: merged([each[name] for each in outputs]) for name in first})
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
    """Decorate a function that runs a forward pass, with or without a backward pass.

    non_split_inputs: names of arguments that are not split. input_split_axes: argument → axis of the batch, 0 for
    others. detach_outputs: detach returned tensors. Works with and without parentheses.
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
                result = function(*part.args, **part.kwargs)
            return tree_map(_detached, result) if detach_outputs else result

        def bodies() -> list[Callable[[], Any]]:
            parts = [arguments(bound, count, index) for index in range(count)]
            return [functools.partial(body, part) for part in parts]

        return merged(model.run_step(function.__qualname__, bodies, functools.partial(described, bound.arguments)))

    # Classes of published scripts have steps without `self`, which they call as `self.train_step(…)`.
    return wrapper if "self" in signature.parameters else staticmethod(wrapper)


def described(arguments: Any) -> list[str]:
    """The shapes of a batch's tensors, which the ranks of a tensor parallel group must agree on.

    With prescaled_batch they have one batch, so its sums as well.
    """
    tensors = [each for each in tree_leaves(arguments) if isinstance(each, torch.Tensor)]
    lines = [str(tuple(each.shape)) for each in tensors]
    if state.parameters.prescaled_batch:
        lines += [f"a sum of {float(each.detach().double().sum()):.17g}" for each in tensors]
    return lines


def is_tracing() -> bool:
    """Whether the step function is being traced; always false, because models are not traced."""
    return False


def _model_for(function: Callable[..., Any]) -> Any:
    if state.model is None:
        raise RuntimeError(
            f"The step {function.__name__} was called before a model was wrapped; wrap it with smp.DistributedModel, "
            "and use the wrapped model in the step."
        )
    if state.model.in_step:
        raise RuntimeError(
            f"The step {function.__name__} was called within a step; call it after that one, or without @smp.step."
        )
    return state.model


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value
