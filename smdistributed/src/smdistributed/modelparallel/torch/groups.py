"""`smp.init`, ranks and sizes, process groups, and the exchange of Python objects.

The launcher is mpirun (OMPI_COMM_WORLD_*) or torchrun (RANK, WORLD_SIZE, …); without one, the process is the only rank.
Objects and control messages use gloo. The model's tensors use the backend that torch.distributed's default group has
for their device: NCCL on GPUs, unless ddp_dist_backend is gloo or the script has chosen another one.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_common_api.rst.
"""

import enum
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from ...gloo_threads import wait_at_exit
from ...ranks import launch_variables
from ..parameters import ModelParallelParameters, ParameterError, parse
from .peers import mismatched_calls
from .state import Members, state
from .topology import Topology
from .watch import RankLost, connect

VARIABLE = "SM_HP_MP_PARAMETERS"
DEGREES = {"partitions", "pipeline_parallel_degree"}
"""Two names of one option."""
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
    """The group in which a rank's number counts."""

    WORLD_RANK = "world"
    MP_RANK = "mp"
    DP_RANK = "dp"
    PP_RANK = "pp"
    TP_RANK = "tp"
    RDP_RANK = "rdp"


WORLD, MP_GROUP, DP_GROUP, PP_GROUP, TP_GROUP, RDP_GROUP = CommGroup


class SMPNotInitialized(RuntimeError):
    """A function was called before `smp.init()`."""

    def __init__(self) -> None:
        super().__init__("The model parallel library is not initialized; call smp.init() first.")


def requested(config: Mapping[str, Any] | None, environ: Mapping[str, str]) -> dict[str, Any]:
    """The unchecked options: the job's, and those passed to `init` that the job does not set; pure.

    Published scripts, such as AWS's example for GPT-J, rely on this: their own options are the defaults of their
    arguments, and the notebook sets other ones.
    """
    text = environ.get(VARIABLE) or "{}"
    try:
        options = json.loads(text)
        options = json.loads(options) if isinstance(options, str) else options
    except json.JSONDecodeError:
        options = None
    if not isinstance(options, dict):
        raise ParameterError((f"{VARIABLE} is {text!r}, which is not a JSON object; set it to one, like {{}}.",))
    set_by_job = options.keys() | (DEGREES if options.keys() & DEGREES else set())
    return {**{name: value for name, value in (config or {}).items() if name not in set_by_job}, **options}


def _overridden(config: Mapping[str, Any] | None, options: Mapping[str, Any]) -> list[str]:
    """A line per option of `init` whose value the job replaced; pure."""
    degrees = [options[name] for name in DEGREES & options.keys()]
    used = {name: options[name] if name in options else degrees[0] for name in config or {}}
    return [
        f"{VARIABLE} sets {name} to {used[name]!r} instead of {value!r}, which smp.init got"
        for name, value in (config or {}).items()
        if used[name] != value
    ]


def init(config: Mapping[str, Any] | None = None) -> None:
    """Read the options, join the other ranks and create the groups. Every rank calls it; a second call does nothing.

    config: options that the job may override. ParameterError with all problems of the options.
    """
    if state.initialized:
        _same_again(config)
        return
    wait_at_exit()
    options = requested(config, os.environ)
    _join_world(parse(options).ddp_dist_backend)
    parameters = parse(options, dist.get_world_size())
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
        size = topology.world_size
        state.watch = connect(dist.get_rank(), size, os.environ["MASTER_ADDR"], lambda obj: allgather(obj, WORLD))
    if dist.get_rank() == 0:
        _announce(parameters, topology, _overridden(config, options))


def _same_again(config: Mapping[str, Any] | None) -> None:
    if config is not None and parse(requested(config, os.environ), state.topology.world_size) != state.parameters:
        raise RuntimeError(
            "smp.init was called before with other parameters, which stay in effect; call it once, with those you want."
        )


def _join_world(gpu_backend: str) -> None:
    """Initialize torch.distributed unless the script has done so. Sets torchrun's variables.

    gpu_backend: the option ddp_dist_backend. RuntimeError if it is gloo and the script chose another backend.
    """
    variables = launch_variables(os.environ)
    os.environ.update(variables)
    gloo = gpu_backend == "gloo" or not torch.cuda.is_available()
    if dist.is_initialized():
        if gloo and torch.cuda.is_available() and "cuda:gloo" not in dist.get_backend_config():
            raise RuntimeError(
                f"ddp_dist_backend is gloo, but torch.distributed was initialized with {dist.get_backend_config()}; "
                "call smp.init() without initializing torch.distributed before, or remove ddp_dist_backend."
            )
        return
    backend = "gloo" if gloo else "cpu:gloo,cuda:nccl"
    if variables["WORLD_SIZE"] == "1":
        dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1)
    else:
        dist.init_process_group(backend)


def backend_for(device_type: str) -> str | None:
    """The backend of torch.distributed's default group for tensors on a type of device, `cpu` or `cuda`."""
    config = dist.get_backend_config()  # such as cpu:gloo,cuda:nccl
    return dict(pair.split(":") for pair in config.split(",")).get(device_type)


def _make_groups(topology: Topology, rank: int) -> dict[CommGroup, Members]:
    """This rank's groups. Every rank creates all groups in the same order, as torch.distributed requires.

    Groups with the same ranks are created once.
    """
    made: dict[tuple[int, ...], Members] = {}
    own_groups = {}
    for kind in CommGroup:
        group_of = getattr(topology, f"{kind.value}_group")
        for ranks in topology.groups(group_of):
            if ranks not in made:
                made[ranks] = _make_group(ranks, topology.world_size)
        own_groups[kind] = made[group_of(rank)]
    return own_groups


def _make_group(ranks: tuple[int, ...], world_size: int) -> Members:
    tensors = dist.group.WORLD if len(ranks) == world_size else dist.new_group(list(ranks))
    return Members(
        ranks, tensors, tensors if backend_for("cpu") == "gloo" else dist.new_group(list(ranks), backend="gloo")
    )


def _announce(parameters: ModelParallelParameters, topology: Topology, overridden: Sequence[str]) -> None:
    lines = [
        f"open implementation, not AWS's library: {topology.pp} partitions × "
        f"{f'{topology.tp} tensor parallel ranks × ' if topology.tp > 1 else ''}{topology.rdp} replicas "
        f"({parameters.placement_strategy}), {parameters.microbatches} microbatches, {parameters.pipeline}",
        *overridden,
        *parameters.remarks,
    ]
    for line in lines:
        print(f"smp: {line}", file=sys.stderr, flush=True)


def is_initialized() -> bool:
    """Whether `init` was called in this process."""
    return state.initialized


def members(group: CommGroup) -> Members:
    """One of this rank's groups."""
    if not state.initialized:
        raise SMPNotInitialized
    return state.groups[group]


def group_ranks(group: CommGroup) -> tuple[int, ...]:
    """The ranks of one of this rank's groups."""
    return members(group).ranks


def _accessors(
    group: CommGroup,
) -> tuple[Callable[[], int], Callable[[], int], Callable[[], list[int]], Callable[[], Any]]:
    """Functions for one kind of group: this rank's place in it, its size, its ranks, its process group."""

    def rank_in_group() -> int:
        return group_ranks(group).index(dist.get_rank())

    def group_size() -> int:
        return len(group_ranks(group))

    def ranks() -> list[int]:
        return list(group_ranks(group))

    def torch_group() -> Any:
        return members(group).tensors

    return rank_in_group, group_size, ranks, torch_group


rank, size, get_world_group, get_world_process_group = _accessors(WORLD)
mp_rank, mp_size, get_mp_group, get_mp_process_group = _accessors(MP_GROUP)
dp_rank, dp_size, get_dp_group, get_dp_process_group = _accessors(DP_GROUP)
pp_rank, pp_size, get_pp_group, get_pp_process_group = _accessors(PP_GROUP)
tp_rank, tp_size, get_tp_group, get_tp_process_group = _accessors(TP_GROUP)
rdp_rank, rdp_size, get_rdp_group, get_rdp_process_group = _accessors(RDP_GROUP)


def local_rank() -> int:
    """This rank's number on its host, from 0."""
    group_ranks(WORLD)
    return int(os.environ["LOCAL_RANK"])


def local_size() -> int:
    """The number of ranks on this host."""
    group_ranks(WORLD)
    return int(os.environ["LOCAL_WORLD_SIZE"])


def num_microbatches() -> int:
    """The number of microbatches into which a step splits its batch."""
    return state.parameters.microbatches


def _global_rank(number: int, rank_type: RankType) -> int:
    ranks = group_ranks(CommGroup(rank_type.value))
    if not 0 <= number < len(ranks):
        raise ValueError(f"{rank_type.name} {number} does not exist; this rank's group has 0 to {len(ranks) - 1}.")
    return ranks[number]


def barrier(group: CommGroup = WORLD) -> None:
    """Wait for every rank of the group."""
    # Over gloo, because a barrier of NCCL would use the first GPU on a rank that has not chosen one yet.
    exchanged(None, group, f"smp.barrier({group.name})")


def dp_barrier() -> None:
    """Wait for the ranks that hold the same partition."""
    barrier(DP_GROUP)


def mp_barrier() -> None:
    """Wait for the ranks of this replica."""
    barrier(MP_GROUP)


def pp_barrier() -> None:
    """Wait for the ranks that hold this replica's partitions."""
    barrier(PP_GROUP)


def allgather(obj: Any, group: CommGroup) -> list[Any]:
    """The objects of all ranks of the group, by rank. Every rank of the group calls it with a picklable object."""
    return exchanged(obj, group, f"smp.allgather({group.name})")


def exchanged(obj: Any, group: CommGroup, what: str) -> list[Any]:
    """Like `allgather`, for the call `what`. RankLost if another rank makes a different call.

    The check is needed because groups with the same ranks share one process group: without it, different calls would
    get each other's objects.
    """
    ranks = group_ranks(group)
    gathered: list[Any] = [None] * len(ranks)
    with state.watch.waiting(what, ranks, together=True), state.watch.explain_errors(ranks):
        dist.all_gather_object(gathered, (what, obj), group=members(group).control)
    for other, (called, _) in zip(ranks, gathered, strict=True):
        if called != what:
            raise RankLost(mismatched_calls(dist.get_rank(), what, other, called))
    return [each for _, each in gathered]


def reduced(value: float, operation: Any, what: str, group: CommGroup = MP_GROUP) -> float:
    """Reduce a number over the ranks of a group, by default this replica, all of which make the call `what`."""
    total, ranks = torch.tensor(value, dtype=torch.float64), group_ranks(group)
    if len(ranks) == 1:
        return value
    with state.watch.waiting(what, ranks), state.watch.explain_errors(ranks):
        dist.all_reduce(total, operation, group=members(group).control)
    return float(total)


def broadcast(obj: Any, group: CommGroup) -> None:
    """Send a picklable object to every other rank of the group; each of them calls `recv_from`."""
    for other in group_ranks(group):
        if other != dist.get_rank():
            with state.watch.waiting(_PAIR, [other]), state.watch.explain_errors([other]):
                dist.send_object_list([obj], other, group=members(WORLD).control)


def send(obj: Any, dest_rank: int, rank_type: RankType) -> None:
    """Send a picklable object to one rank, which calls `recv_from`."""
    other = _global_rank(dest_rank, rank_type)
    with state.watch.waiting(_PAIR, [other]), state.watch.explain_errors([other]):
        dist.send_object_list([obj], other, group=members(WORLD).control)


def recv_from(src_rank: int, rank_type: RankType) -> Any:
    """The object that a rank sent or broadcast."""
    received: list[Any] = [None]
    other = _global_rank(src_rank, rank_type)
    with state.watch.waiting(_PAIR, [other]), state.watch.explain_errors([other]):
        dist.recv_object_list(received, other, group=members(WORLD).control)
    return received[0]
