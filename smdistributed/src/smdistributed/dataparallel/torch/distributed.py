"""SMDDP version 1: `import smdistributed.dataparallel.torch.distributed as dist`, its collectives over all ranks.

The only group is WORLD. Collectives change their tensors in place; with `async_op` they return a handle with `wait()`.
Source: SageMaker Python SDK, doc/api/training/sdp_versions/v1.2.x/smd_data_parallel_pytorch.rst. get_local_size and
reduce are not documented there, but scripts call them; they follow torch.distributed.
"""

import enum
import os
from collections.abc import MutableMapping
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from ...ranks import launch_variables, started_by_launcher
from .backend import NAME, register


class ReduceOp(enum.Enum):
    """How a reduction combines the ranks' tensors, element by element."""

    SUM = "sum"
    AVERAGE = "average"
    MIN = "min"
    MAX = "max"


class group:
    """The groups of ranks."""

    WORLD = "WORLD"


_TORCH_OPS = {
    ReduceOp.SUM: dist.ReduceOp.SUM,
    ReduceOp.AVERAGE: dist.ReduceOp.SUM,  # gloo can't average, so the sum is divided afterwards
    ReduceOp.MIN: dist.ReduceOp.MIN,
    ReduceOp.MAX: dist.ReduceOp.MAX,
}


class AveragedWork:
    """The handle of an asynchronous average: the tensor holds the sum until `wait` divides it."""

    def __init__(self, work: Any, tensor: torch.Tensor) -> None:
        self._work, self._tensor, self._divided = work, tensor, False

    def wait(self, timeout: Any = None) -> bool:
        """Wait until the tensor holds the average."""
        done = self._work.wait() if timeout is None else self._work.wait(timeout)
        if not self._divided:
            self._divided = True
            _divide(self._tensor)
        return bool(done)

    def is_completed(self) -> bool:
        """Whether the sum is complete; the tensor holds the average only after `wait`."""
        return bool(self._work.is_completed())


def __getattr__(name: str) -> Any:
    """AttributeError, with a hint for names that only torch.distributed has."""
    if not name.startswith("_") and hasattr(dist, name):
        raise AttributeError(
            f"SMDDP's version 1 has no {name}; use torch.distributed.{name}, with the backend smddp of "
            "smdistributed.dataparallel.torch.torch_smddp."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def check_group(given: Any) -> None:
    """ValueError unless the group is None or contains all ranks."""
    if given is not None and given is not group.WORLD and given is not dist.group.WORLD:
        raise ValueError("SMDDP's version 1 has one group of ranks, group.WORLD; leave out group and process_group.")


def check_initialized(what: str) -> None:
    """RuntimeError before init_process_group; `what` is the function that was called."""
    if not dist.is_initialized():
        raise RuntimeError(
            f"{what} was called before init_process_group; call "
            "smdistributed.dataparallel.torch.distributed.init_process_group() first."
        )


def join_environment(environ: MutableMapping[str, str]) -> None:
    """Set the variables of torch.distributed that the launcher did not set; does nothing without a launcher."""
    if started_by_launcher(environ):
        environ.update(launch_variables(environ))


def is_available() -> bool:
    """Whether a launcher started this process."""
    return started_by_launcher(os.environ)


def init_process_group(*args: Any, **kwargs: Any) -> None:
    """Join the other ranks. Arguments are torch.distributed's and have no effect; a second call does nothing.

    ValueError for another group than WORLD; RuntimeError if the launcher's variables are incomplete.
    """
    check_group(kwargs.get("group"))
    if dist.is_initialized():
        return
    register()
    os.environ.update(launch_variables(os.environ))
    if os.environ["WORLD_SIZE"] == "1":
        dist.init_process_group(NAME, store=HashStore(), rank=0, world_size=1)
    else:
        dist.init_process_group(NAME)


def is_initialized() -> bool:
    """Whether init_process_group was called in this process."""
    return dist.is_initialized()


def get_world_size(group: Any = group.WORLD) -> int:
    """The number of ranks of the job."""
    check_initialized("get_world_size")
    check_group(group)
    return dist.get_world_size()


def get_rank(group: Any = group.WORLD) -> int:
    """This rank's number, from 0, over all hosts."""
    check_initialized("get_rank")
    check_group(group)
    return dist.get_rank()


def get_local_rank() -> int:
    """This rank's number, from 0, on its host."""
    check_initialized("get_local_rank")
    return int(launch_variables(os.environ)["LOCAL_RANK"])


def get_local_size() -> int:
    """The number of ranks on this host."""
    check_initialized("get_local_size")
    return int(launch_variables(os.environ)["LOCAL_WORLD_SIZE"])


def all_reduce(tensor: torch.Tensor, op: Any = ReduceOp.SUM, group: Any = group.WORLD, async_op: bool = False) -> Any:
    """Combine the ranks' tensors of equal shape; every rank gets the result. `op`: a ReduceOp, SUM if None."""
    _check("all_reduce", group)
    work = dist.all_reduce(tensor, _torch_op(op), async_op=async_op)
    return _averaged(work, tensor) if op is ReduceOp.AVERAGE else work


def reduce(
    tensor: torch.Tensor, dst: int = 0, op: Any = ReduceOp.SUM, group: Any = group.WORLD, async_op: bool = False
) -> Any:
    """Like all_reduce, but only rank `dst` gets the result; on other ranks the tensor is undefined afterwards."""
    _check("reduce", group)
    work = dist.reduce(tensor, dst, _torch_op(op), async_op=async_op)
    return _averaged(work, tensor) if op is ReduceOp.AVERAGE else work


def broadcast(tensor: torch.Tensor, src: int = 0, group: Any = group.WORLD, async_op: bool = False) -> Any:
    """Copy the tensor of rank `src` into every rank's tensor of the same shape."""
    _check("broadcast", group)
    return dist.broadcast(tensor, src, async_op=async_op)


def all_gather(
    tensor_list: list[torch.Tensor], tensor: torch.Tensor, group: Any = group.WORLD, async_op: bool = False
) -> Any:
    """Copy the ranks' tensors, all of one shape, into `tensor_list`, which has one tensor per rank."""
    _check("all_gather", group)
    return dist.all_gather(tensor_list, tensor, async_op=async_op)


def all_to_all_single(
    output_t: torch.Tensor,
    input_t: torch.Tensor,
    output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None,
    group: Any = group.WORLD,
    async_op: bool = False,
) -> Any:
    """Send each rank its part of `input_t`, and put the received parts into `output_t`, ordered by rank.

    Sizes are along the first dimension; None splits evenly.
    """
    _check("all_to_all_single", group)
    return dist.all_to_all_single(output_t, input_t, output_split_sizes, input_split_sizes, async_op=async_op)


def barrier(group: Any = group.WORLD, async_op: bool = False) -> Any:
    """Wait until every rank calls it."""
    _check("barrier", group)
    return dist.barrier(async_op=async_op)


def _check(what: str, given: Any) -> None:
    check_initialized(what)
    check_group(given)


def _torch_op(op: Any) -> Any:
    """torch's operation for a ReduceOp; torch's own operations are returned unchanged."""
    if op is None:
        return dist.ReduceOp.SUM
    if isinstance(op, ReduceOp):
        return _TORCH_OPS[op]
    if isinstance(op, dist.ReduceOp | dist.ReduceOp.RedOpType):
        return op
    raise ValueError(f"op is {op!r}; use one of smdistributed.dataparallel.torch.distributed.ReduceOp.")


def _averaged(work: Any, tensor: torch.Tensor) -> Any:
    if work is not None:
        return AveragedWork(work, tensor)
    _divide(tensor)
    return None


def _divide(tensor: torch.Tensor) -> None:
    """Divide in place by the number of ranks; integers are truncated, as in NCCL's average."""
    whole = not (tensor.is_floating_point() or tensor.is_complex())
    tensor.div_(dist.get_world_size(), rounding_mode="trunc" if whole else None)
