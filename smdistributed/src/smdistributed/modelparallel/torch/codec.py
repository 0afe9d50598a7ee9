"""Encodes control messages: a line with the sizes of their bytes fields, a line of JSON, then these bytes.

Not as pickle, because reading a pickle runs whatever code its sender chose. What arrives must have the fields and types
of `messages`.
"""

import functools
import json
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import torch

from . import messages
from .messages import Request, ServerStatus, StepOutcome

_Decoder = Callable[[Any, list[bytes]], Any]
_TYPES = {
    each.__name__: each
    for each in (*typing.get_args(Request), messages.Form, messages.Hello, messages.Opening, ServerStatus, StepOutcome)
}


class NotAMessage(ValueError):
    """What arrived is not a control message of this version of the library."""

    def __init__(self) -> None:
        super().__init__(
            "A control message of the model parallel library can't be read; do all ranks have the same version of it?"
        )


def encode(message: Any) -> bytes:
    """A message of `messages`, or None, as bytes."""
    parts: list[bytes] = []

    def special(value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return str(value).removeprefix("torch.")
        assert isinstance(value, bytes), value
        parts.append(value)
        return len(parts) - 1

    text = json.dumps([type(message).__name__, message], default=special)
    return b"\n".join([json.dumps([len(each) for each in parts]).encode(), text.encode(), b"".join(parts)])


def decode(data: bytes) -> Any:
    """The message that `encode` got. NotAMessage for anything else."""
    try:
        sizes, text, rest = data.split(b"\n", 2)
        name, fields = json.loads(text)
        parts = list(_cut(rest, json.loads(sizes)))
        return None if fields is None else _decoder(_TYPES[name])(fields, parts)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NotAMessage from error


def _cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    begin = 0
    for size in sizes:
        yield data[begin : begin + size]
        begin += size


@functools.cache
def _decoder(kind: Any) -> _Decoder:
    """A function that turns JSON into a value of this type. ValueError or TypeError if it is not one."""
    if kind is bytes:
        return lambda value, parts: parts[value]
    if kind is torch.dtype:
        return lambda value, _: _dtype(value)
    if typing.get_origin(kind) is types.UnionType:
        (other,) = (each for each in typing.get_args(kind) if each is not types.NoneType)
        decode_other = _decoder(other)
        return lambda value, parts: None if value is None else decode_other(value, parts)
    if typing.get_origin(kind) is tuple:
        return _tuple_decoder(typing.get_args(kind))
    if hasattr(kind, "_fields"):
        fields = _tuple_decoder(tuple(typing.get_type_hints(kind).values()))
        return lambda value, parts: kind(*fields(value, parts))
    return lambda value, _: _checked(value, kind)


def _tuple_decoder(kinds: tuple[Any, ...]) -> _Decoder:
    if kinds[1:] == (...,):
        decode_each = _decoder(kinds[0])
        return lambda value, parts: tuple([decode_each(each, parts) for each in value])
    decoders = [_decoder(each) for each in kinds]
    return lambda value, parts: tuple([each(item, parts) for each, item in zip(decoders, value, strict=True)])


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise TypeError
    return dtype
