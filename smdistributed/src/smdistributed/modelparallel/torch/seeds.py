"""Random numbers that do not depend on timing or on the number of ranks.

Every microbatch of a step has its own stream. So has every call of a module that may use random numbers; its seed is
drawn from the caller's stream, and sent to the owner if the module is on another rank. So a module gets the same
numbers wherever it runs, and when a gradient checkpoint runs it again, because checkpoints restore the caller's stream.
"""

import hashlib
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

_DRAWING = (
    nn.modules.dropout._DropoutNd, nn.RReLU, nn.FractionalMaxPool2d, nn.FractionalMaxPool3d, nn.MultiheadAttention,
    nn.RNNBase,
)  # fmt: skip
"""torch's own modules that use random numbers directly."""


def mixed(*parts: int | str) -> int:
    """A seed from several parts; pure."""
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def _on_gpu() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def random_state() -> Any:
    """The state of this process's generators: CPU and, if in use, GPU."""
    return torch.get_rng_state(), torch.cuda.get_rng_state() if _on_gpu() else None


def set_random_state(state: Any) -> None:
    """Restore the state of this process's generators."""
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1])


def begin_stream(seed: int) -> None:
    """Seed the generators in use; a hundred times as fast as torch.manual_seed."""
    torch.default_generator.manual_seed(seed)
    if _on_gpu():
        torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(seed)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Use a separate random stream in this context; the process's own stream continues unchanged afterwards."""
    before = random_state()
    begin_stream(seed)
    try:
        yield
    finally:
        set_random_state(before)


def draw() -> int:
    """Draw a seed from the current stream."""
    return int(torch.randint(1 << 62, ()))


def may_draw(module: nn.Module) -> bool:
    """Whether a module or one of its submodules may use random numbers; the same on every rank."""
    return any(
        isinstance(each, _DRAWING) or not type(each).__module__.startswith("torch.nn.") for each in module.modules()
    )


def install_random_streams(root: nn.Module, exclude: Collection[nn.Module] = ()) -> None:
    """Start a new stream at every call of a module that may draw and is in training mode.

    exclude: modules whose streams the calling rank seeds.
    """
    excluded = set(map(id, exclude))
    for module in root.modules():
        if id(module) not in excluded and may_draw(module):
            module.register_forward_pre_hook(_enter, prepend=True)
            module.register_forward_hook(_leave, always_call=True)


DRAWS_APART = "_smp_draws_apart"
"""Attribute of a module that draws for its own attention heads only: its tensor parallel rank."""


@dataclass
class _Caller:
    """A module that is being called. state: the generators' state before.

    seed: that of a module with DRAWS_APART, whose stream differs by rank; the modules that it calls get theirs from
    this seed and `calls`, because they compute what all ranks of the group have.
    """

    module: nn.Module
    state: Any
    seed: int | None
    calls: int = 0


_callers = threading.local()
"""Per thread, `stack`: the modules that are being called, innermost last."""


def _stack() -> list[_Caller]:
    if not hasattr(_callers, "stack"):
        _callers.stack = []
    stack: list[_Caller] = _callers.stack
    return stack


def _enter(module: nn.Module, args: Any) -> None:
    if not module.training:
        return
    stack = _stack()
    if stack and stack[-1].seed is not None:
        seed = mixed(stack[-1].seed, stack[-1].calls)
        stack[-1].calls += 1
    else:
        seed = draw()
    rank = module.__dict__.get(DRAWS_APART)
    stack.append(_Caller(module, random_state(), None if rank is None else seed))
    begin_stream(seed if rank is None else mixed(seed, "rank", rank))


def _leave(module: nn.Module, args: Any, result: Any) -> None:
    stack = _stack()
    if stack and stack[-1].module is module:
        set_random_state(stack.pop().state)
