"""smp.nn: FusedLayerNorm, and in `distributed` the layers that tensor parallelism splits.

huggingface translates state dicts, flash attention raises.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch.rst.
"""

from typing import Any

import torch

from .distributed import (
    DistributedAttentionLayer,
    DistributedEmbedding,
    DistributedLinear,
    DistributedModule,
    DistributedTransformer,
    DistributedTransformerLayer,
    DistributedTransformerLMHead,
    DistributedTransformerOutputLayer,
)

__all__ = [
    "DistributedAttentionLayer",
    "DistributedEmbedding",
    "DistributedLinear",
    "DistributedModule",
    "DistributedTransformer",
    "DistributedTransformerLMHead",
    "DistributedTransformerLayer",
    "DistributedTransformerOutputLayer",
    "FusedLayerNorm",
]


class FusedLayerNorm(torch.nn.LayerNorm):
    """torch's LayerNorm, which is fused already; a subclass because scripts test for it with isinstance."""


def __getattr__(name: str) -> Any:
    if name == "FlashAttentionLayer":
        raise ImportError("smp.nn.FlashAttentionLayer is not supported; use smp.nn.DistributedAttentionLayer.")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
