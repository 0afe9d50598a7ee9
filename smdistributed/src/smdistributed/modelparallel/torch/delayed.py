"""Parameters whose initial values are computed only once their place is known.

A rank keeps a part of the model, but a script creates all of it. In the context of `delay_param_initialization`,
`torch.empty` returns a `Delayed` tensor, which records what is written to it, and the state of the random generator.
DistributedModel replays the writes for what the rank keeps, one tensor at a time. The values are those that the script
would have got without the context, to the last bit.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_any, tree_map_only

from .state import Members

_LEAST = 4096
"""Elements; smaller tensors are not worth the trouble."""
_REPLACES = {"uniform_", "normal_", "zero_", "fill_", "copy_", "exponential_", "bernoulli_", "random_", "log_normal_"}
"""Operations after which earlier values no longer count."""


class _Write(NamedTuple):
    """An operation that writes to a place (size, stride, offset). generator: its state before a random operation."""

    operation: Any
    place: tuple[tuple[int, ...], tuple[int, ...], int]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    generator: torch.Tensor | None

    def run(self, storage: torch.Tensor, generator: torch.Generator | None) -> None:
        more = {**self.kwargs, "generator": generator} if generator is not None else self.kwargs
        self.operation(torch.as_strided(storage, *self.place), *self.args, **more)


class _Record:
    """The storage of a delayed tensor and its views: what was written to it so far."""

    def __init__(self, elements: int, dtype: torch.dtype) -> None:
        self.elements, self.dtype = elements, dtype
        self.writes: list[_Write] = []

    def add(self, write: _Write) -> None:
        """Record a write. A random one runs once without being kept, so that the generator moves on as it should."""
        if write.generator is not None:
            write.run(torch.empty(self.elements, dtype=self.dtype), write.kwargs.get("generator"))
        everything = write.operation.overloadpacket.__name__ in _REPLACES and math.prod(write.place[0]) == self.elements
        self.writes = [write] if everything else [*self.writes, write]

    def replayed(self) -> torch.Tensor:
        """A storage with the values."""
        storage = torch.empty(self.elements, dtype=self.dtype)
        for write in self.writes:
            generator = None if write.generator is None else torch.Generator()
            if generator is not None:
                generator.set_state(write.generator)  # type: ignore[arg-type]
            write.run(storage, generator)
        return storage

    @property
    def states(self) -> list[torch.Tensor] | None:
        """The generator's states, on which alone the values depend; None if other tensors were written."""
        if any(tree_any(torch.is_tensor, (each.args, each.kwargs)) for each in self.writes):
            return None
        return [each.generator for each in self.writes if each.generator is not None]

    def use_states(self, states: Iterable[torch.Tensor]) -> None:
        """Take another rank's values."""
        left = iter(states)
        self.writes = [each if each.generator is None else each._replace(generator=next(left)) for each in self.writes]


class Delayed(torch.Tensor):
    """A tensor whose values are computed whenever an operation reads them."""

    meta: torch.Tensor
    record: _Record
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, meta: torch.Tensor, record: _Record) -> "Delayed":
        made: Delayed = torch.Tensor._make_wrapper_subclass(
            cls, meta.size(), strides=meta.stride(), storage_offset=meta.storage_offset(), dtype=meta.dtype
        )
        made.meta, made.record = meta, record
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> "Delayed":
        record = _Record(self.record.elements, self.record.dtype)
        record.writes = list(self.record.writes)
        copied = Delayed(self.meta, record)
        copied.__dict__.update({name: each for name, each in self.__dict__.items() if name not in ("meta", "record")})
        memo[id(self)] = copied.requires_grad_(self.requires_grad)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.values().__reduce_ex__(protocol)  # type: ignore[no-untyped-call]

    def values(self) -> torch.Tensor:
        """A tensor with the values."""
        meta = self.meta
        return torch.as_strided(self.record.replayed(), meta.size(), meta.stride(), meta.storage_offset())

    @classmethod
    def __torch_dispatch__(cls, operation: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        kwargs = kwargs or {}
        returned = operation._schema.returns
        aliases = [each.alias_info for each in returned if each.alias_info is not None]
        if aliases and not any(each.is_write for each in aliases):
            seen = operation(args[0].meta, *args[1:], **kwargs)
            return tree_map_only(torch.Tensor, lambda meta: Delayed(meta, args[0].record), seen)
        target = args[0] if args and operation._schema.is_mutable and isinstance(args[0], Delayed) else None
        others, kwargs = tree_map_only(Delayed, Delayed.values, (args if target is None else args[1:], kwargs))
        if target is None:
            return operation(*others, **kwargs)
        meta = target.meta
        generator = None
        if torch.Tag.nondeterministic_seeded in operation.tags:
            generator = (kwargs.get("generator") or torch.default_generator).get_state()
        place = (tuple(meta.size()), meta.stride(), int(meta.storage_offset()))
        target.record.add(_Write(operation, place, others, kwargs, generator))
        return target


class _DelaysEmpty(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes `torch.empty` return delayed tensors, except in recurrent networks: they keep weak references to theirs."""

    paused = False

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        empty = operation is torch.ops.aten.empty.memory_format
        if self.paused or not empty or not _is_worth_it(args[0], kwargs):
            return operation(*args, **kwargs)
        meta = operation(*args, **{**kwargs, "device": "meta", "pin_memory": False})
        return Delayed(meta, _Record(meta.numel(), meta.dtype))


def _is_worth_it(size: Iterable[int], options: dict[str, Any]) -> bool:
    on_cpu = torch.device(options.get("device") or "cpu").type == "cpu"
    return (
        on_cpu and (options.get("dtype") or torch.get_default_dtype()).is_floating_point and math.prod(size) >= _LEAST
    )


@contextmanager
def delayed_values() -> Iterator[None]:
    """In this context the values of new parameters are delayed."""
    plain_init = nn.RNNBase.__init__
    with _DelaysEmpty() as mode:  # type: ignore[no-untyped-call]

        def init(module: nn.Module, *args: Any, **kwargs: Any) -> None:
            before, mode.paused = mode.paused, True
            try:
                plain_init(module, *args, **kwargs)  # type: ignore[arg-type]
            finally:
                mode.paused = before

        setattr(nn.RNNBase, "__init__", init)  # noqa: B010, because mypy rejects a plain assignment
        try:
            yield
        finally:
            setattr(nn.RNNBase, "__init__", plain_init)  # noqa: B010


def computed(value: Any) -> Any:
    """The values of a delayed tensor; anything else as it is."""
    return value.values() if isinstance(value, Delayed) else value


def give_values(parameter: nn.Parameter, values: torch.Tensor) -> None:
    """Set a parameter's data; a delayed one becomes a plain one, and stays the same object."""
    if not isinstance(parameter, Delayed):
        parameter.data = values
        return
    plain = nn.Parameter(values, requires_grad=parameter.requires_grad)
    plain.__dict__.update({name: each for name, each in parameter.__dict__.items() if name not in ("meta", "record")})
    torch.utils.swap_tensors(parameter, plain)  # type: ignore[no-untyped-call]


def settle_parameter(parameter: torch.Tensor) -> None:
    """Give a delayed parameter its values."""
    if isinstance(parameter, Delayed):
        give_values(parameter, parameter.values())  # type: ignore[arg-type]


def settle_buffers(module: nn.Module) -> None:
    """Give the delayed buffers of a module their values."""
    for each in module.modules():
        for name, buffer in each._buffers.items():
            each._buffers[name] = computed(buffer)


def share_states(tensors: Iterable[torch.Tensor], group: Members) -> list[torch.Tensor]:
    """Give the delayed tensors of all ranks the values of the group's first rank; every rank of it calls this.

    Only the generator's states are sent. Returns the tensors whose values must be sent: those that are not delayed, or
    were written from other tensors.
    """
    states: list[list[torch.Tensor]] = []
    delayed: list[Delayed] = []
    others = []
    for tensor in tensors:
        own = tensor.record.states if isinstance(tensor, Delayed) else None
        if own is None:
            settle_parameter(tensor)
            others.append(tensor)
        else:
            delayed.append(tensor)  # type: ignore[arg-type]
            states.append(own)
    sent = [states]
    dist.broadcast_object_list(sent, group.ranks[0], group=group.control)
    for each, first in zip(delayed, sent[0], strict=True):
        each.record.use_states(first)
    return others
