"""Tensors inside dicts, lists and tuples."""

from collections.abc import Mapping
from typing import Any

import torch


def on_cpu(values: Any) -> Any:
    """The same with every tensor on the CPU, detached."""
    if isinstance(values, torch.Tensor):
        return values.detach().cpu()
    if isinstance(values, Mapping):
        return {key: on_cpu(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return type(values)(on_cpu(value) for value in values)
    return values
