"""Tensors of other ranks, and the serialization of arguments and results.

A `RemoteTensor` has a shape and a type; its data is fetched only when an operator needs it, so a tensor between two
modules on the same rank is not sent. `Arrival` and `Departure` are autograd nodes that connect the graphs of two ranks:
they hand the gradient over.
"""

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from .messages import Meta


class Handle:
    """Refers to a tensor of the rank `owner` by its number there.

    reached: the owner may have a gradient for it that is not passed on yet. release: called when the handle is deleted.
    """

    __slots__ = ("meta", "number", "owner", "reached", "release")

    def __init__(self, number: int, owner: int, meta: Meta, release: Callable[[int, int], None] | None = None) -> None:
        self.number, self.owner, self.meta, self.reached, self.release = number, owner, meta, False, release

    def __del__(self) -> None:
        if self.release is not None:
            self.release(self.owner, self.number)


class GradientHolder:
    """Holds the gradient that an Arrival received, or that a Departure continues with."""

    __slots__ = ("gradient", "value")

    value: torch.Tensor | None
    gradient: torch.Tensor | None

    def __init__(self) -> None:
        self.value, self.gradient = None, None

    def add(self, gradient: torch.Tensor | None) -> None:
        """Add a gradient; a tensor that is used several times has several."""
        if gradient is not None:
            self.gradient = gradient if self.gradient is None else self.gradient + gradient

    def take(self) -> torch.Tensor | None:
        """Return the sum and clear it."""
        taken, self.gradient = self.gradient, None
        return taken


class Arrival(torch.autograd.Function):
    """A tensor from another rank as a node of the local graph. It is not a leaf, so it may be changed in place."""

    @staticmethod
    def forward(ctx: Any, token: torch.Tensor, holder: GradientHolder) -> torch.Tensor:
        ctx.holder = holder
        value, holder.value = holder.value, None
        assert value is not None
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ctx.holder.add(gradients[0])
        return None, None


class Departure(torch.autograd.Function):
    """The node of a local tensor that was sent to another rank, whose gradient `holder` receives.

    `forward` returns a scalar; backward() of the scalar continues with this gradient. The node refers to the tensor as
    it was sent, so the script may change it in place afterwards.
    """

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, holder: GradientHolder) -> torch.Tensor:
        ctx.holder = holder
        return tensor.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return ctx.holder.take(), None


def arrive(value: torch.Tensor, holder: GradientHolder) -> torch.Tensor:
    """`value` as a tensor whose gradient goes to `holder`."""
    holder.value = value
    with torch.enable_grad():
        return Arrival.apply(torch.zeros((), requires_grad=True), holder)  # type: ignore[no-any-return,no-untyped-call]


_KNOWN = {
    "shape", "dtype", "ndim", "size", "dim", "is_floating_point", "is_complex", "numel", "layout", "element_size",
    "__len__", "stride", "is_sparse", "is_nested", "is_quantized", "names", "nelement", "is_contiguous", "is_mkldnn",
    "itemsize", "nbytes",
}  # fmt: skip
"""Attributes and functions that need no data."""


def version(tensor: torch.Tensor) -> int:
    """How often a tensor was changed in place; 0 for inference tensors, for which torch does not count."""
    return 0 if tensor.is_inference() else tensor._version


class RemoteTensor(torch.Tensor):
    """A tensor of another rank: shape, type and device are known; its data is fetched when first needed."""

    handle: Handle
    microbatch: Any
    _fetch: Callable[["RemoteTensor"], torch.Tensor]
    _value: torch.Tensor | None
    _at_arrival: int
    _device: torch.device

    @staticmethod
    def make(
        handle: Handle, microbatch: Any, device: torch.device, fetch: Callable[["RemoteTensor"], torch.Tensor]
    ) -> "RemoteTensor":
        """The tensor of a handle, for a microbatch. fetch: returns its data."""
        shell = torch.empty(handle.meta.shape, dtype=handle.meta.dtype, device="meta")
        tensor: RemoteTensor = torch.Tensor._make_subclass(RemoteTensor, shell, require_grad=False)
        tensor.handle, tensor.microbatch, tensor._device = handle, microbatch, device
        tensor._fetch, tensor._value = fetch, None
        return tensor

    def value(self) -> torch.Tensor:
        """The local copy with data, fetched at the first call."""
        state = self.__dict__
        if state["_value"] is None:
            fetched = state["_value"] = state["_fetch"](self)
            state["_at_arrival"] = version(fetched)
        value: torch.Tensor = state["_value"]
        return value

    @property
    def changed(self) -> bool:
        """Whether the script changed the local copy in place, so that it differs from the owner's tensor."""
        value: torch.Tensor | None = self.__dict__["_value"]
        return value is not None and version(value) != self.__dict__["_at_arrival"]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = getattr(getattr(func, "__self__", None), "__name__", "")
        first = args[0] if args else None
        if isinstance(first, RemoteTensor):
            if name in _KNOWN:
                with torch._C.DisableTorchFunctionSubclass():
                    return func(*args, **(kwargs or {}))
            if name in _ANSWERS:
                return _ANSWERS[name](first)
            if name == "backward":
                raise RuntimeError(
                    "loss.backward() runs on one rank only, and another rank holds the loss; call model.backward(loss)."
                )
        return func(*tree_map(local, args), **tree_map(local, kwargs or {}))


_ANSWERS: Mapping[str, Callable[[RemoteTensor], Any]] = {
    "device": lambda tensor: tensor.__dict__["_device"],
    "is_cuda": lambda tensor: tensor.__dict__["_device"].type == "cuda",
    "is_cpu": lambda tensor: tensor.__dict__["_device"].type == "cpu",
    "is_meta": lambda tensor: False,
    "requires_grad": lambda tensor: tensor.__dict__["handle"].meta.requires_grad,
    "is_leaf": lambda tensor: not tensor.__dict__["handle"].meta.requires_grad,
}
"""Attributes for which the tensor without data would return wrong values."""


def local(each: Any) -> Any:
    """The tensor with its data, fetched if another rank holds it; other objects unchanged."""
    return each.value() if isinstance(each, RemoteTensor) else each


def change(tensor: torch.Tensor, after: RemoteTensor) -> None:
    """Apply a remote module's in-place change of an argument to the caller's tensor.

    If gradients are disabled and the tensor requires a gradient, its data changes and its graph does not, as in torch.
    """
    graph_may_change = torch.is_grad_enabled() or not tensor.requires_grad
    if isinstance(tensor, RemoteTensor) and not tensor.changed and graph_may_change:
        tensor.handle, tensor._value = after.handle, None
    else:
        local(tensor).copy_(after.value())


class _Pickler(pickle.Pickler):
    """Collects the tensors of an object instead of pickling them; modules and tensors in `named` become names."""

    def __init__(self, file: io.BytesIO, named: Mapping[int, str]) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._named, self._places = named, dict[int, int]()
        self.tensors: list[torch.Tensor] = []

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, nn.Module | torch.Tensor) and id(obj) in self._named:
            return self._named[id(obj)]
        if isinstance(obj, torch.Tensor):
            place = self._places.setdefault(id(obj), len(self.tensors))
            if place == len(self.tensors):
                self.tensors.append(obj)
            return place
        return None


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, tensors: Sequence[Any], named: Mapping[str, Any]) -> None:
        super().__init__(io.BytesIO(data))
        self._tensors, self._named = tensors, named

    def persistent_load(self, pid: Any) -> Any:
        return self._named[pid] if isinstance(pid, str) else self._tensors[pid]


def pack(tree: Any, named: Mapping[int, str] | None = None) -> tuple[bytes, list[torch.Tensor]]:
    """An object as bytes without its tensors, and the list of the tensors, each once.

    named: id → name of objects that both ends have; they are sent as names. TypeError if it can't be pickled.
    """
    file = io.BytesIO()
    pickler = _Pickler(file, named or {})
    try:
        pickler.dump(tree)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"It can't be sent to another rank: {error}; use tensors, numbers, strings and containers."
        ) from error
    return file.getvalue(), pickler.tensors


def unpack(data: bytes, tensors: Sequence[Any], named: Mapping[str, Any] | None = None) -> Any:
    """The object that `pack` took apart."""
    return _Unpickler(data, tensors, {} if named is None else named).load()


class Names(dict[str, Any]):
    """Maps every name to itself, to compare the structure of packed objects."""

    def __missing__(self, name: str) -> str:
        return name


class Placeholder:
    """A placeholder for a tensor, to compare the structure of packed objects."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Placeholder) and other.number == self.number

    __hash__ = None  # type: ignore[assignment]


def same_form(one: bytes, other: bytes, count: int) -> bool:
    """Whether two packed objects with `count` tensors differ at most in the tensors' data."""
    if one == other:
        return True
    places = [Placeholder(number) for number in range(count)]
    return bool(unpack(one, places, Names()) == unpack(other, places, Names()))
