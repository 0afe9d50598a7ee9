"""The names of apex's fused optimizers; importing one raises ImportError.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch.rst.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("Fused"):
        raise ImportError(
            f"smp.optimizers.{name} is not supported because it needs NVIDIA's apex; use an optimizer of torch.optim, "
            "such as AdamW, which smp.DistributedOptimizer takes."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
