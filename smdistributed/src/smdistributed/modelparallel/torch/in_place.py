"""Arguments that a remote module changes in place, such as a list that it appends to or an object with its state.

The module's owner has only copies. So the changed copies are sent back with the result and applied to the caller's
objects.
"""

from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import torch
from torch import nn

_FIXED = (torch.Tensor, nn.Module, type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, type)
_DICTS = (dict, OrderedDict, defaultdict)


class WithArguments(NamedTuple):
    """A result together with the changed arguments."""

    result: Any
    arguments: Any


def can_change(tree: Any) -> bool:
    """Whether a module could change the arguments in place, not counting their tensors; pure."""
    if isinstance(tree, tuple):
        return any(can_change(each) for each in tree)
    return not isinstance(tree, _FIXED)


def input_name(place: int) -> str:
    """The name under which an unchanged tensor of the arguments is sent back."""
    return f"input {place}"


class TakeOver:
    """Applies the changes of copies to the caller's objects."""

    def __init__(self) -> None:
        self._own: dict[int, Any] = {}
        self._copies: list[Any] = []

    def __call__(self, own: Any, copy: Any) -> Any:
        """Update `own` from its changed copy; returns `own`, or the copy if `own` can't be changed."""
        if id(copy) in self._own:
            return self._own[id(copy)]
        if own is copy or type(own) is not type(copy):
            return copy
        if isinstance(own, tuple):
            return _tuple_like(own, [*map(self, own, copy), *copy[len(own) :]])
        if not can_change(own):
            return copy
        self._own[id(copy)] = own
        self._copies.append(copy)  # keeps the id unique
        if isinstance(own, list):
            own[:] = [*map(self, own, copy), *copy[len(own) :]]
        elif isinstance(own, set):
            own.clear()
            own.update(copy)
        elif type(own) in _DICTS:
            self._put(own, copy)
        elif hasattr(own, "__dict__"):
            self._put(own.__dict__, copy.__dict__)
        return own

    def _put(self, own: dict[Any, Any], copy: dict[Any, Any]) -> None:
        items = {key: self(own[key], value) if key in own else value for key, value in copy.items()}
        own.clear()
        own.update(items)

    def own_in(self, result: Any) -> Any:
        """The result with the caller's objects instead of their copies."""
        if id(result) in self._own:
            return self._own[id(result)]
        if isinstance(result, tuple):
            return _tuple_like(result, list(map(self.own_in, result)))
        if type(result) is list:
            return list(map(self.own_in, result))
        if type(result) is dict:
            return {key: self.own_in(value) for key, value in result.items()}
        return result


def as_in_one_process(reply: Any, arguments: Any) -> Any:
    """Apply a module's in-place changes to the caller's arguments, and return the call's result."""
    if not isinstance(reply, WithArguments):
        return reply
    take_over = TakeOver()
    take_over(arguments, reply.arguments)
    return take_over.own_in(reply.result)


def _tuple_like(one: Any, parts: list[Any]) -> Any:
    """A tuple of the same type with these parts; the tuple itself if all parts are the same."""
    if len(parts) == len(one) and all(part is old for part, old in zip(parts, one, strict=True)):
        return one
    return type(one)(*parts) if hasattr(one, "_fields") else type(one)(parts)
