"""The part of smp.nn that works without tensor parallelism; other names raise. huggingface translates state dicts.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch.rst.
"""

from typing import Any

import torch


class FusedLayerNorm(torch.nn.LayerNorm):
    """torch's LayerNorm, which is fused already; a subclass because scripts test for it with isinstance."""


def __getattr__(name: str) -> Any:
    if name.startswith("Distributed") or name == "FlashAttentionLayer":
        raise ImportError(
            f"smp.nn.{name} belongs to tensor parallelism, which is not supported; make the model of torch's own "
            "modules, and split it with pipeline_parallel_degree."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
