"""`smp.init`, ranks and sizes, process groups, and the exchange of Python objects.

The launcher is mpirun (OMPI_COMM_WORLD_*) or torchrun (RANK, WORLD_SIZE, …); without either a process is alone.
Objects and control messages go over gloo, tensors of GPUs over NCCL: each group has both where there are GPUs.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_common_api.rst.
"""

import enum
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from ...ranks import launch_variables
from ..parameters import ModelParallelParameters, ParameterError, parse
from .peers import at_odds
from .state import state
from .topology import Topology
from .watch import RankLost, connect

VARIABLE = "SM_HP_MP_PARAMETERS"
_PAIR = "smp.send or smp.broadcast, with smp.recv_from"


class CommGroup(enum.Enum):
    """A group of ranks that this rank belongs to."""

    WORLD = "world"
    MP_GROUP = "mp"
    DP_GROUP = "dp"
    PP_GROUP = "pp"
    TP_GROUP = "tp"
    RDP_GROUP = "rdp"


class RankType(enum.Enum):
    """How the number of a rank is to be understood: its place in one of this rank's groups."""

    WORLD_RANK = "world"
    MP_RANK = "mp"
    DP_RANK = "dp"
    PP_RANK = "pp"
    TP_RANK = "tp"
    RDP_RANK = "rdp"


WORLD, MP_GROUP, DP_GROUP, PP_GROUP, TP_GROUP, RDP_GROUP = CommGroup


class SMPNotInitialized(RuntimeError):
    """Something was asked for that only `smp.init()` sets up."""

    def __init__(self) -> None:
        super().__init__("The model parallel library is not initialized; call smp.init() first.")


def requested(config: Mapping[str, Any] | None, environ: Mapping[str, str]) -> Mapping[str, Any]:
    """The options that are in force, raw: those given to `init`, else the job's, else none; pure."""
    if config is not None:
        return config
    text = environ.get(VARIABLE) or "{}"
    try:
        found = json.loads(text)
        found = json.loads(found) if isinstance(found, str) else found
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise ParameterError((f"{VARIABLE} is {text!r}, which is no JSON object; set it to one, like {{}}.",))
    return found


def init(config: Mapping[str, Any] | None = None) -> None:
    """Read the options, join the other ranks, make the groups. Every rank calls it; a second call changes nothing.

    `config`: the options; None takes those of the job. ParameterError with all that is wrong with them.
    """
    if state.initialized:
        _same_again(config)
        return
    _join_world()
    parameters = parse(requested(config, os.environ), dist.get_world_size())
    topology = Topology(
        dist.get_world_size(),
        parameters.pipeline_parallel_degree,
        parameters.tensor_parallel_degree,
        parameters.placement_strategy,
    )
    state.parameters, state.topology = parameters, topology
    state.groups = _make_groups(topology, dist.get_rank())
    state.initialized = True
    if topology.world_size > 1 and not state.watch.connected:
        everyone = topology.world_size
        state.watch = connect(dist.get_rank(), everyone, os.environ["MASTER_ADDR"], lambda obj: allgather(obj, WORLD))
    if dist.get_rank() == 0:
        _say(parameters, topology)


def _same_again(config: Mapping[str, Any] | None) -> None:
    if config is not None and parse(config, state.topology.world_size) != state.parameters:
        raise RuntimeError(
            "smp.init was called before with other parameters, which are in force; call it once, with those you want."
        )


def _join_world() -> None:
    """torch.distributed's process group of all ranks, unless the script made one. Sets the variables of torchrun."""
    variables = launch_variables(os.environ)
    os.environ.update(variables)
    if dist.is_initialized():
        return
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    if variables["WORLD_SIZE"] == "1":
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    else:
        dist.init_process_group(backend)


def _make_groups(topology: Topology, rank: int) -> dict[CommGroup, tuple[tuple[int, ...], Any]]:
    """This rank's groups. Every rank makes all groups in one order, as torch.distributed wants it; equal ones once."""
    made: dict[tuple[int, ...], Any] = {topology.world_group(rank): dist.group.WORLD}
    found = {}
    for kind in CommGroup:
        group_of = getattr(topology, f"{kind.value}_group")
        for ranks in topology.groups(group_of):
            if ranks not in made:
                made[ranks] = dist.new_group(list(ranks))
        found[kind] = (group_of(rank), made[group_of(rank)])
    return found


def _say(parameters: ModelParallelParameters, topology: Topology) -> None:
    lines = [
        f"open implementation, not AWS's library: {topology.pp} partitions × {topology.rdp} replicas "
        f"({parameters.placement_strategy}), {parameters.microbatches} microbatches, {parameters.pipeline}",
        *parameters.remarks,
    ]
    for line in lines:
        print(f"smp: {line}", file=sys.stderr, flush=True)


def is_initialized() -> bool:
    """Whether `init` was called in this process."""
    return state.initialized


def group_ranks(group: CommGroup) -> tuple[int, ...]:
    """The ranks of one of this rank's groups."""
    if not state.initialized:
        raise SMPNotInitialized
    return state.groups[group][0]


def process_group(group: CommGroup) -> Any:
    """torch.distributed's process group of one of this rank's groups."""
    if not state.initialized:
        raise SMPNotInitialized
    return state.groups[group][1]


def _accessors(
    group: CommGroup,
) -> tuple[Callable[[], int], Callable[[], int], Callable[[], list[int]], Callable[[], Any]]:
    """For one kind of group: this rank's place in it, its size, its ranks, its process group."""

    def rank_in_group() -> int:
        return group_ranks(group).index(dist.get_rank())

    def group_size() -> int:
        return len(group_ranks(group))

    def ranks() -> list[int]:
        return list(group_ranks(group))

    def of_torch() -> Any:
        return process_group(group)

    return rank_in_group, group_size, ranks, of_torch


rank, size, get_world_group, get_world_process_group = _accessors(WORLD)
mp_rank, mp_size, get_mp_group, get_mp_process_group = _accessors(MP_GROUP)
dp_rank, dp_size, get_dp_group, get_dp_process_group = _accessors(DP_GROUP)
pp_rank, pp_size, get_pp_group, get_pp_process_group = _accessors(PP_GROUP)
tp_rank, tp_size, get_tp_group, get_tp_process_group = _accessors(TP_GROUP)
rdp_rank, rdp_size, get_rdp_group, get_rdp_process_group = _accessors(RDP_GROUP)


def local_rank() -> int:
    """This rank's place among those of its host."""
    group_ranks(WORLD)
    return int(os.environ["LOCAL_RANK"])


def local_size() -> int:
    """How many ranks this host has."""
    group_ranks(WORLD)
    return int(os.environ["LOCAL_WORLD_SIZE"])


def num_microbatches() -> int:
    """Into how many microbatches a step splits its batch."""
    return state.parameters.microbatches


def _global_rank(number: int, rank_type: RankType) -> int:
    ranks = group_ranks(CommGroup(rank_type.value))
    if not 0 <= number < len(ranks):
        raise ValueError(f"{rank_type.name} {number} is not there; this rank's group has 0 to {len(ranks) - 1}.")
    return ranks[number]


def barrier(group: CommGroup = WORLD) -> None:
    """Wait for every rank of the group."""
    # Over gloo, and without a device: a barrier of NCCL would take the first GPU of a rank that chose none yet.
    exchanged(None, group, f"smp.barrier({group.name})")


def dp_barrier() -> None:
    """Wait for the ranks that hold the same partition."""
    barrier(DP_GROUP)


def mp_barrier() -> None:
    """Wait for the ranks of this replica."""
    barrier(MP_GROUP)


def pp_barrier() -> None:
    """Wait for the ranks among which this replica's partitions are spread."""
    barrier(PP_GROUP)


def allgather(obj: Any, group: CommGroup) -> list[Any]:
    """What every rank of the group gave, by rank. Every rank of the group calls it, with a picklable object."""
    return exchanged(obj, group, f"smp.allgather({group.name})")


def exchanged(obj: Any, group: CommGroup, what: str) -> list[Any]:
    """The same in a call of another name. RankLost if it is not `what` that the other ranks call.

    Groups of the same ranks are one group of torch.distributed's, in which any call would get another one's objects.
    """
    ranks = group_ranks(group)
    found: list[Any] = [None] * len(ranks)
    with state.watch.waiting(what, ranks, together=True), state.watch.named(ranks):
        dist.all_gather_object(found, (what, obj), group=process_group(group))
    for other, (called, _) in zip(ranks, found, strict=True):
        if called != what:
            raise RankLost(at_odds(dist.get_rank(), what, other, called))
    return [each for _, each in found]


def reduced(value: float, operation: Any, what: str) -> float:
    """A number over the partitions of this replica, each of which is in the call `what`."""
    total = torch.tensor(value, dtype=torch.float64)
    if pp_size() > 1:
        ranks = group_ranks(PP_GROUP)
        with state.watch.waiting(what, ranks), state.watch.named(ranks):
            dist.all_reduce(total, operation, group=process_group(PP_GROUP))
    return float(total)


def broadcast(obj: Any, group: CommGroup) -> None:
    """Send a picklable object to every other rank of the group; each of them calls `recv_from`."""
    for other in group_ranks(group):
        if other != dist.get_rank():
            with state.watch.waiting(_PAIR, [other]), state.watch.named([other]):
                dist.send_object_list([obj], other)


def send(obj: Any, dest_rank: int, rank_type: RankType) -> None:
    """Send a picklable object to one rank, which calls `recv_from`."""
    other = _global_rank(dest_rank, rank_type)
    with state.watch.waiting(_PAIR, [other]), state.watch.named([other]):
        dist.send_object_list([obj], other)


def recv_from(src_rank: int, rank_type: RankType) -> Any:
    """The object that a rank sent or broadcast."""
    received: list[Any] = [None]
    other = _global_rank(src_rank, rank_type)
    with state.watch.waiting(_PAIR, [other]), state.watch.named([other]):
        dist.recv_object_list(received, other)
    return received[0]
