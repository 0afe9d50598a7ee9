"""Tensors that are sharded over replicas: each rank of a sharding group has some rows of them.

They are torch's DTensors. Importing their class takes seconds, so this module recognises them by an attribute.
"""

import math
from typing import Any, NamedTuple

import torch


class Rows(NamedTuple):
    """One rank's rows of a sharded tensor, while the state of all ranks is gathered."""

    tensor: torch.Tensor


def is_sharded(value: Any) -> bool:
    """Whether a value is a sharded tensor."""
    return hasattr(value, "to_local")


def own_rows(value: Any) -> Any:
    """This rank's rows of a sharded tensor; other values as they are."""
    return value.to_local() if is_sharded(value) else value


def marked_rows(value: Any) -> Any:
    """This rank's rows of a sharded tensor as `Rows`, also in a dict; other values as they are."""
    if isinstance(value, dict):
        return {name: marked_rows(each) for name, each in value.items()}
    return Rows(value.to_local()) if is_sharded(value) else value


def rows_for(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """This rank's rows of a tensor for a parameter: the tensor may be whole, or these rows already.

    A tensor of another shape, or for a parameter that is not sharded, is returned as it is.
    """
    if not is_sharded(parameter) or value.shape != parameter.shape:
        return value
    like: Any = parameter
    mesh, rows = like.device_mesh, like.to_local().shape[0]
    begin = mesh.get_local_rank(mesh.mesh_dim_names[-1]) * math.ceil(value.shape[0] / mesh.shape[-1])
    return value[begin : begin + rows]


def sharded_like(value: Any, parameter: torch.Tensor) -> Any:
    """A parameter's state, of which this rank has the rows or the whole, sharded as the parameter; also in a dict.

    Values of other shapes, such as a count of steps, are returned as they are.
    """
    if isinstance(value, dict):
        return {name: sharded_like(each, parameter) for name, each in value.items()}
    if not is_sharded(parameter) or not isinstance(value, torch.Tensor) or is_sharded(value):
        return value
    from torch.distributed.tensor import DTensor

    like: Any = parameter
    local, rows = like.to_local(), rows_for(value, parameter)
    if rows.shape != local.shape:
        return value
    rows = rows.to(local.device, copy=True)
    return DTensor.from_local(
        rows, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
