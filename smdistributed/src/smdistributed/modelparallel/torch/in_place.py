"""Arguments that a module changes in place: a list that it appends to, a dict or an object that it keeps its state in.

Its owner has copies of them. So what it changed in these goes back with the result, and is done to the caller's own.
"""

from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import torch
from torch import nn

_FIXED = (torch.Tensor, nn.Module, type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, type)
_DICTS = (dict, OrderedDict, defaultdict)


class WithArguments(NamedTuple):
    """A result, and what became of the arguments."""

    result: Any
    arguments: Any


def can_change(tree: Any) -> bool:
    """Whether a module could change an argument in place, its tensors aside; pure."""
    if isinstance(tree, tuple):
        return any(can_change(each) for each in tree)
    return not isinstance(tree, _FIXED)


def input_name(place: int) -> str:
    """By which a tensor in the arguments travels back, where it is still what it was."""
    return f"input {place}"


class TakeOver:
    """Does to a caller's objects what was done to copies of them; `own` is by the copies' ids."""

    def __init__(self) -> None:
        self._own: dict[int, Any] = {}
        self._copies: list[Any] = []

    def __call__(self, own: Any, copy: Any) -> Any:
        """What stands in the place of `own`: itself, if it can be changed."""
        if id(copy) in self._own:
            return self._own[id(copy)]
        if own is copy or type(own) is not type(copy):
            return copy
        if isinstance(own, tuple):
            return _tuple_like(own, [*map(self, own, copy), *copy[len(own) :]])
        if not can_change(own):
            return copy
        self._own[id(copy)] = own
        self._copies.append(copy)  # an id counts as long as the object lives
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
        """A result, with the caller's objects in the place of their copies."""
        if id(result) in self._own:
            return self._own[id(result)]
        if isinstance(result, tuple):
            return _tuple_like(result, list(map(self.own_in, result)))
        if type(result) is list:
            return list(map(self.own_in, result))
        if type(result) is dict:
            return {key: self.own_in(value) for key, value in result.items()}
        return result


def as_in_one_process(found: Any, arguments: Any) -> Any:
    """A call's result, after its arguments were changed as the module changed its copies of them."""
    if not isinstance(found, WithArguments):
        return found
    take_over = TakeOver()
    take_over(arguments, found.arguments)
    return take_over.own_in(found.result)


def _tuple_like(one: Any, parts: list[Any]) -> Any:
    """A tuple of its kind; itself if nothing is new."""
    if len(parts) == len(one) and all(part is old for part, old in zip(parts, one, strict=True)):
        return one
    return type(one)(*parts) if hasattr(one, "_fields") else type(one)(parts)
