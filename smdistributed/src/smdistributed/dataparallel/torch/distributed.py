"""SMDDP version 1: `import smdistributed.dataparallel.torch.distributed as dist`, its collectives over all ranks.

There is one group, WORLD. Collectives change their tensors in place, and return a handle with `wait()` if `async_op`.
Source: SageMaker Python SDK, doc/api/training/sdp_versions/v1.2.x/smd_data_parallel_pytorch.rst; get_local_size and
reduce, which scripts call as well, are as in torch.distributed.
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
    """The groups of ranks there are."""

    WORLD = "WORLD"


_TORCHS = {
    ReduceOp.SUM: dist.ReduceOp.SUM,
    ReduceOp.AVERAGE: dist.ReduceOp.SUM,  # gloo can't average: divided afterwards
    ReduceOp.MIN: dist.ReduceOp.MIN,
    ReduceOp.MAX: dist.ReduceOp.MAX,
}


class AveragedWork:
    """The handle of an average under way, which is a sum until `wait` has divided it, once."""

    def __init__(self, work: Any, tensor: torch.Tensor) -> None:
        self._work, self._tensor, self._divided = work, tensor, False

    def wait(self, timeout: Any = None) -> bool:
        """Until the tensor is the average."""
        done = self._work.wait() if timeout is None else self._work.wait(timeout)
        if not self._divided:
            self._divided = True
            _divide(self._tensor)
        return bool(done)

    def is_completed(self) -> bool:
        """Whether the ranks have exchanged; the tensor is the average after `wait`."""
        return bool(self._work.is_completed())


def __getattr__(name: str) -> Any:
    """A name that torch.distributed has and SMDDP's version 1 does not."""
    if not name.startswith("_") and hasattr(dist, name):
        raise AttributeError(
            f"SMDDP's version 1 has no {name}; use torch.distributed.{name}, with the backend smddp of "
            "smdistributed.dataparallel.torch.torch_smddp."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def check_group(given: Any) -> None:
    """ValueError for a group that is not the one of all ranks."""
    if given is not None and given is not group.WORLD and given is not dist.group.WORLD:
        raise ValueError("SMDDP's version 1 has one group of ranks, group.WORLD; leave out group and process_group.")


def check_initialized(what: str) -> None:
    """RuntimeError before init_process_group; `what` was called."""
    if not dist.is_initialized():
        raise RuntimeError(
            f"{what} was called before the ranks have met; call "
            "smdistributed.dataparallel.torch.distributed.init_process_group() first."
        )


def join_environment(environ: MutableMapping[str, str]) -> None:
    """Set what torch.distributed reads of what a launcher has not set; nothing in a process without a launcher."""
    if started_by_launcher(environ):
        environ.update(launch_variables(environ))


def is_available() -> bool:
    """Whether a launcher started this process, so that there is something to initialize."""
    return started_by_launcher(os.environ)


def init_process_group(*args: Any, **kwargs: Any) -> None:
    """Meet the other ranks. Arguments are torch.distributed's and have no effect; a second call changes nothing.

    ValueError for another group than WORLD; RuntimeError where the launcher's variables don't say which rank this is.
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
    """Combine the ranks' tensors of one shape, so that every rank's is the result. `op`: a ReduceOp, SUM if None."""
    _check("all_reduce", group)
    work = dist.all_reduce(tensor, _torchs(op), async_op=async_op)
    return _averaged(work, tensor) if op is ReduceOp.AVERAGE else work


def reduce(
    tensor: torch.Tensor, dst: int = 0, op: Any = ReduceOp.SUM, group: Any = group.WORLD, async_op: bool = False
) -> Any:
    """As all_reduce, but the result is on rank `dst` only; elsewhere the tensor is undefined afterwards."""
    _check("reduce", group)
    work = dist.reduce(tensor, dst, _torchs(op), async_op=async_op)
    return _averaged(work, tensor) if op is ReduceOp.AVERAGE else work


def broadcast(tensor: torch.Tensor, src: int = 0, group: Any = group.WORLD, async_op: bool = False) -> Any:
    """Give every rank the tensor of rank `src`, in its own of the same shape."""
    _check("broadcast", group)
    return dist.broadcast(tensor, src, async_op=async_op)


def all_gather(
    tensor_list: list[torch.Tensor], tensor: torch.Tensor, group: Any = group.WORLD, async_op: bool = False
) -> Any:
    """Fill the list, one tensor for each rank, with the ranks' tensors, all of one shape."""
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
    """Give each rank its part of `input_t`, and put the parts that come into `output_t`, in the order of ranks.

    Sizes are along the first dimension; None splits evenly.
    """
    _check("all_to_all_single", group)
    return dist.all_to_all_single(output_t, input_t, output_split_sizes, input_split_sizes, async_op=async_op)


def barrier(group: Any = group.WORLD, async_op: bool = False) -> Any:
    """Wait until every rank is here."""
    _check("barrier", group)
    return dist.barrier(async_op=async_op)


def _check(what: str, given: Any) -> None:
    check_initialized(what)
    check_group(given)


def _torchs(op: Any) -> Any:
    """torch's operation of a ReduceOp; torch's own is taken as it is."""
    if op is None:
        return dist.ReduceOp.SUM
    if isinstance(op, ReduceOp):
        return _TORCHS[op]
    if isinstance(op, dist.ReduceOp | dist.ReduceOp.RedOpType):
        return op
    raise ValueError(f"op is {op!r}; use one of smdistributed.dataparallel.torch.distributed.ReduceOp.")


def _averaged(work: Any, tensor: torch.Tensor) -> Any:
    if work is not None:
        return AveragedWork(work, tensor)
    _divide(tensor)
    return None


def _divide(tensor: torch.Tensor) -> None:
    """In place; whole numbers stay whole, as NCCL's average leaves them."""
    whole = not (tensor.is_floating_point() or tensor.is_complex())
    tensor.div_(dist.get_world_size(), rounding_mode="trunc" if whole else None)
