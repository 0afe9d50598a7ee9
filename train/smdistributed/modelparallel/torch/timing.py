"""How long each module's forward takes, measured on one microbatch before the model is partitioned.

The script's step function runs on the first rank, without its backward pass; buffers and random numbers are afterwards
as they were. Only `optimize: speed` asks for it.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from .seeds import seeded

_tracing = False


def is_tracing() -> bool:
    """Whether the step function runs to be measured, and not to train."""
    return _tracing


class Tracer:
    """A pipeline whose model.backward does nothing."""

    running = True

    def backward(self, tensors: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor | None] | None) -> None:
        """Nothing: only the forward pass is measured."""


def measured(module: nn.Module, body: Callable[[], Any]) -> dict[str, float]:
    """Seconds of each module's forward, its children's included, in the order of first calls; "" is itself."""
    global _tracing
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    _tracing = True
    try:
        with seeded(0):
            body()  # the first run pays for what is set up once
            return _timed(module, body)
    finally:
        _tracing = False
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def _timed(module: nn.Module, body: Callable[[], Any]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    starts: list[float] = []
    handles = []

    def now() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()

    def before(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            seconds.setdefault(name, 0.0)
            starts.append(now())

        return hook

    def after(name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            seconds[name] += now() - starts.pop()

        return hook

    for name, each in module.named_modules():
        handles.append(each.register_forward_pre_hook(before(name)))
        handles.append(each.register_forward_hook(after(name), always_call=True))
    try:
        body()
    finally:
        for handle in handles:
            handle.remove()
    return seconds
