"""Contexts in which scripts make their model.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch.rst.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .state import state


@contextmanager
def model_creation(
    tensor_parallelism: bool = False,  # noqa: FBT001, FBT002
    dtype: torch.dtype | None = None,
    **_: Any,
) -> Iterator[None]:
    """Parameters that are made inside have this type; with the options fp16 or bf16 they stay float32 all the same.

    These options compute in half precision, and an optimizer needs float32. The other keywords of the documentation
    belong to tensor parallelism, which is refused: NotImplementedError.
    """
    if tensor_parallelism:
        raise NotImplementedError(
            "smp.model_creation(tensor_parallelism=True) is not supported; leave it False, and split the model by "
            "partitions."
        )
    before = torch.get_default_dtype()
    half = dtype in (torch.float16, torch.bfloat16) and (state.parameters.fp16 or state.parameters.bf16)
    torch.set_default_dtype(before if dtype is None or half else dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def delay_param_initialization(enabled: bool = True) -> Iterator[None]:  # noqa: FBT001, FBT002
    """Changes nothing: parameters are made at once, and each rank lets go of the others' at the first step."""
    yield
