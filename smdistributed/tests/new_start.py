"""Runs in each rank of a launch: the library as in a new process, for the next of several cases."""

import gc
import os
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist


def start(config: dict[str, Any]) -> None:
    """`smp.init` again. Earlier cases' groups go first: gloo keeps threads for each, and hundreds of cases slow all."""
    state = smp.state
    for group in {group for _, group in state.groups.values()} - {dist.group.WORLD}:
        dist.destroy_process_group(group)
    state.initialized, state.model, state.optimizer, state.groups = False, None, None, {}
    gc.collect()  # a model and its hooks hold each other, and the groups
    smp.init({**config, **gpu_options()})
    torch.backends.cudnn.allow_tf32 = False  # by default convolutions on a GPU have 10 bits


def gpu_options() -> dict[str, str]:
    """The option that ranks need to share a GPU, because NCCL refuses that."""
    return {"ddp_dist_backend": "gloo"} if 0 < torch.cuda.device_count() < int(os.environ["WORLD_SIZE"]) else {}
