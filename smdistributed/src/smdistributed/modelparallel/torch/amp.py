"""Mixed precision: autocast for the options fp16 and bf16, and a GradScaler that decides for all ranks together.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch.rst, amp.GradScaler.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

from .gradients import gradients_group
from .groups import group_ranks, reduced
from .state import state


def mixed_precision() -> AbstractContextManager[Any]:
    """The context of a step function: autocast with the option fp16 or bf16, else none."""
    if not (state.parameters.fp16 or state.parameters.bf16):
        return nullcontext()
    return torch.autocast(_device_type(), torch.float16 if state.parameters.fp16 else torch.bfloat16)


def _device_type() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


class GradScaler(torch.amp.GradScaler):
    """torch's GradScaler, except that a non-finite gradient on one rank skips the step on all ranks of the replica.

    device: by default "cuda" if there is a GPU, else "cpu". The loss is scaled in the step function, only on pp_rank 0.
    The scale is the same on all ranks because each calls `step` and `update`.
    """

    def __init__(self, *args: Any, device: str | None = None, **kwargs: Any) -> None:
        super().__init__(device or _device_type(), *args, **kwargs)
        if self.is_enabled():
            # torch does this at the first loss, but other ranks have no loss, and microbatch threads would race.
            self._lazy_init_scale_growth_tracker(torch.device(self._device))

    def _unscale_grads_(
        self,
        optimizer: torch.optim.Optimizer,
        inv_scale: torch.Tensor,
        found_inf: torch.Tensor,
        allow_fp16: bool,  # noqa: FBT001
    ) -> dict[torch.device, torch.Tensor]:
        """Like torch's, with found_inf of all ranks that hold the model; a rank without gradients takes part too."""
        per_device = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        group = gradients_group()
        if len(group_ranks(group)) > 1:
            on_this_rank = max((float(each) for each in per_device.values()), default=0.0)
            on_any_rank = reduced(on_this_rank, dist.ReduceOp.MAX, "smp.amp.GradScaler.step()", group)
            per_device = per_device or {found_inf.device: found_inf}
            for each in per_device.values():
                each.fill_(on_any_rank)
        return per_device
