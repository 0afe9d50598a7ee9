"""Runs in each rank of a launch: resets the library for the next of several cases."""

import gc
import os
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist


def start(config: dict[str, Any]) -> None:
    """Call `smp.init` again, after destroying earlier groups, because gloo keeps threads for each of them."""
    state = smp.state
    for group in {group for each in state.groups.values() for group in (each.tensors, each.control)} - {
        dist.group.WORLD
    }:
        dist.destroy_process_group(group)
    state.initialized, state.model, state.optimizer, state.groups, state.exchanges = False, None, None, {}, None
    gc.collect()  # a model and its hooks reference each other and the groups
    smp.init({**config, **gpu_options()})
    torch.backends.cudnn.allow_tf32 = False  # by default convolutions on a GPU have 10 bits


def gpu_options() -> dict[str, str]:
    """The option that ranks need to share a GPU, because NCCL refuses that."""
    return {"ddp_dist_backend": "gloo"} if 0 < torch.cuda.device_count() < int(os.environ["WORLD_SIZE"]) else {}
