"""Runs in each rank of a launch: resets the library for the next of several cases."""

import gc
import os
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from smdistributed.modelparallel.torch import fully_sharded
from torch.distributed.device_mesh import DeviceMesh


def mesh(device_type: str, ranks: torch.Tensor, mesh_dim_names: tuple[str, ...]) -> DeviceMesh:
    """Stands for DeviceMesh in the library. One per shape, because DTensor goes on with the groups of the first."""
    key = device_type, str(ranks.tolist()), mesh_dim_names
    if key not in meshes:
        meshes[key] = DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names)
    return meshes[key]


meshes: dict[Any, DeviceMesh] = {}
fully_sharded.DeviceMesh = mesh


def start(config: dict[str, Any]) -> None:
    """Call `smp.init` again, after destroying earlier groups, because gloo keeps threads for each of them."""
    state = smp.state
    groups = set(dist.distributed_c10d._world.pg_map) - {dist.group.WORLD}
    for group in sorted(groups, key=lambda each: each.group_name):
        if not group.group_desc.startswith("mesh"):
            dist.destroy_process_group(group)
    state.initialized, state.model, state.optimizer, state.groups, state.exchanges = False, None, None, {}, None
    gc.collect()  # a model and its hooks reference each other and the groups
    smp.init({**config, **gpu_options()})
    torch.backends.cudnn.allow_tf32 = False  # by default convolutions on a GPU have 10 bits


def gpu_options() -> dict[str, str]:
    """The option that ranks need to share a GPU, because NCCL refuses that."""
    return {"ddp_dist_backend": "gloo"} if 0 < torch.cuda.device_count() < int(os.environ["WORLD_SIZE"]) else {}
