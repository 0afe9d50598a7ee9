"""Mixed precision by torch.autocast: what the options fp16 and bf16 do, and GradScaler, one decision for all ranks.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch.rst, amp.GradScaler.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

from .groups import pp_size, reduced
from .state import state


def mixed_precision() -> AbstractContextManager[Any]:
    """How a step function runs: as the options fp16 and bf16 say, else as the script has it."""
    if not (state.parameters.fp16 or state.parameters.bf16):
        return nullcontext()
    return torch.autocast(_device_type(), torch.float16 if state.parameters.fp16 else torch.bfloat16)


def _device_type() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


class GradScaler(torch.amp.GradScaler):
    """torch's, but that a gradient that is not finite on one rank keeps all ranks of the replica from their step.

    `device`: "cuda" where there is a GPU, else "cpu". The loss is scaled in the step function, on pp_rank 0 alone; the
    scale is the same everywhere, for every rank calls `step` and `update`.
    """

    def __init__(self, *args: Any, device: str | None = None, **kwargs: Any) -> None:
        super().__init__(device or _device_type(), *args, **kwargs)
        if self.is_enabled():
            # Not at the first loss: the other ranks never see one, nor may the threads of microbatches race for it.
            self._lazy_init_scale_growth_tracker(torch.device(self._device))

    def _unscale_grads_(
        self,
        optimizer: torch.optim.Optimizer,
        inv_scale: torch.Tensor,
        found_inf: torch.Tensor,
        allow_fp16: bool,  # noqa: FBT001
    ) -> dict[torch.device, torch.Tensor]:
        """Also said to the other partitions, and by a rank that has no gradient."""
        found = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        if pp_size() > 1:
            here = max((float(each) for each in found.values()), default=0.0)
            anywhere = reduced(here, dist.ReduceOp.MAX, "smp.amp.GradScaler.step()")
            found = found or {found_inf.device: found_inf}
            for each in found.values():
                each.fill_(anywhere)
        return found
