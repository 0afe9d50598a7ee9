"""Random numbers that do not depend on which thread or rank is faster, nor on how many ranks there are.

Every microbatch of a step has a stream of its own, and so has every call of a module that may use random numbers: its
seed is drawn from the stream of what called it. So a module gets the same numbers wherever it runs, and again when a
gradient checkpoint runs it a second time, for checkpoints put the caller's stream back. With a module of another rank
its owner is told the seed.
"""

import hashlib
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

_DRAWING = (
    nn.modules.dropout._DropoutNd, nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d, nn.MultiheadAttention,
    nn.RNNBase,
)  # fmt: skip
"""Of torch's own modules those that use random numbers themselves."""


def mixed(*parts: int | str) -> int:
    """A seed from several parts; pure."""
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def _on_gpu() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def random_state() -> Any:
    """Where this process's generators stand."""
    return torch.get_rng_state(), torch.cuda.get_rng_state() if _on_gpu() else None


def set_random_state(state: Any) -> None:
    """Put this process's generators back to where they stood."""
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1])


def begin_stream(seed: int) -> None:
    """As torch.manual_seed for the devices in use, which takes a hundred times as long."""
    torch.default_generator.manual_seed(seed)
    if _on_gpu():
        torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random numbers of a stream of their own; the process's own stream goes on afterwards as if nothing had been."""
    before = random_state()
    begin_stream(seed)
    try:
        yield
    finally:
        set_random_state(before)


def draw() -> int:
    """A seed from the stream that is in use."""
    return int(torch.randint(1 << 62, ()))


def may_draw(module: nn.Module) -> bool:
    """Whether a module, or one in it, may use random numbers; the same on every rank."""
    return any(
        isinstance(each, _DRAWING) or not type(each).__module__.startswith("torch.nn.") for each in module.modules()
    )


def give_streams(root: nn.Module, besides: Collection[nn.Module] = ()) -> None:
    """From now on a stream for every call of a module that may draw, where it is in training mode.

    `besides`: those that get one from the rank that calls them.
    """
    called_from_afar = set(map(id, besides))
    for module in root.modules():
        if id(module) not in called_from_afar and may_draw(module):
            module.register_forward_pre_hook(_enter, prepend=True)
            module.register_forward_hook(_leave, always_call=True)


_callers = threading.local()
"""Streams of the modules around the one that runs, innermost last: `stack`, of each thread."""


def _stack() -> list[tuple[nn.Module, Any]]:
    if not hasattr(_callers, "stack"):
        _callers.stack = []
    found: list[tuple[nn.Module, Any]] = _callers.stack
    return found


def _enter(module: nn.Module, args: Any) -> None:
    if module.training:
        seed = draw()
        _stack().append((module, random_state()))
        begin_stream(seed)


def _leave(module: nn.Module, args: Any, result: Any) -> None:
    stack = _stack()
    if stack and stack[-1][0] is module:
        set_random_state(stack.pop()[1])
