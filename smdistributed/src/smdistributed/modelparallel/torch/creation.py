"""Contexts in which scripts create their model.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch.rst.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from .delayed import delayed_values
from .state import state
from .tensor.choice import tensor_parallelism as mark_created


@contextmanager
def model_creation(
    tensor_parallelism: bool = False,  # noqa: FBT001, FBT002
    dtype: torch.dtype | None = None,
    **kwargs: Any,
) -> Iterator[None]:
    """Create parameters with this dtype, with delayed values. With fp16 or bf16 a half-precision dtype is ignored.

    These options compute in half precision by autocast, and the optimizer needs float32 parameters.
    tensor_parallelism, kwargs: as in smp.tensor_parallelism.
    """
    before = torch.get_default_dtype()
    half = dtype in (torch.float16, torch.bfloat16) and (state.parameters.fp16 or state.parameters.bf16)
    torch.set_default_dtype(before if dtype is None or half else dtype)
    try:
        with mark_created(tensor_parallelism, **kwargs), delay_param_initialization():
            yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def delay_param_initialization(enabled: bool = True) -> Iterator[None]:  # noqa: FBT001, FBT002
    """Delay the values of parameters until it is known which of them this rank keeps.

    A rank then never needs memory for the whole model. If it keeps the whole model, this has no effect.
    """
    parts = state.topology.pp * state.topology.tp > 1 or state.parameters.sharded
    with delayed_values() if enabled and parts else nullcontext():
        yield
