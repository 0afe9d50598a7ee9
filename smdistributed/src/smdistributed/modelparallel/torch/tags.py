"""Marks the modules that a script creates in a context, for smp.partition and smp.tensor_parallelism."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

_contexts = threading.local()
_plain_init = nn.Module.__init__


@contextmanager
def tagged(name: str, value: Any) -> Iterator[None]:
    """Set this attribute on every module that this thread creates in the context; the innermost context wins."""
    stack = _contexts.__dict__.setdefault("stack", [])
    stack.append((name, value))
    setattr(nn.Module, "__init__", _tagging_init)  # noqa: B010, because mypy rejects a plain assignment
    try:
        yield
    finally:
        stack.pop()
        if not stack:
            setattr(nn.Module, "__init__", _plain_init)  # noqa: B010


def _tagging_init(module: nn.Module, *args: Any, **kwargs: Any) -> None:
    _plain_init(module, *args, **kwargs)
    module.__dict__.update(_contexts.__dict__.get("stack", ()))
