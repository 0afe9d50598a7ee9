"""The public names of `import smdistributed.modelparallel.torch as smp`.

topology   which rank holds which partition of which replica; pure
groups     init, ranks and sizes, process groups, the exchange of objects
state      the one state of a process
partition  which module runs on which partition; partition_table shows it before the first step. auto_partition chooses
           by what module_tree knows of the model, ties (what must stay together) and balance (even runs)
optimizer  DistributedOptimizer, with its loss_scale
checkpoint save and load, partial and full; files are whole or not there
amp        GradScaler, and the types of the options fp16 and bf16
creation   contexts for making a model; nn, optimizers and utils are names that published scripts import
step       @smp.step and StepOutput: a batch in microbatches
model      DistributedModel; model_state is its state dicts, gradients what replicas exchange,
           activation its checkpoints
pipeline   a step on every rank: coordinator (pp_rank 0) and server (the others) exchange messages over a wire; the
           coordinator's threads take turns by a baton and keep a tape, which the backward pass reads from its end;
           remote is tensors of other ranks, stand_in their modules, in_place what these change,
           seeds random numbers
watch      ranks hear of each other's ends and failures, so that none waits for ever; peers is what they know
"""

from . import amp, model, nn, optimizers, utils
from .activation import set_activation_checkpointing
from .checkpoint import SMPCheckpointError, load, resume_from_checkpoint, save, save_checkpoint
from .creation import delay_param_initialization, model_creation
from .groups import (
    DP_GROUP,
    MP_GROUP,
    PP_GROUP,
    RDP_GROUP,
    TP_GROUP,
    WORLD,
    CommGroup,
    RankType,
    allgather,
    barrier,
    broadcast,
    dp_barrier,
    dp_rank,
    dp_size,
    get_dp_group,
    get_dp_process_group,
    get_mp_group,
    get_mp_process_group,
    get_pp_group,
    get_pp_process_group,
    get_rdp_group,
    get_rdp_process_group,
    get_tp_group,
    get_tp_process_group,
    get_world_group,
    get_world_process_group,
    init,
    is_initialized,
    local_rank,
    local_size,
    mp_barrier,
    mp_rank,
    mp_size,
    num_microbatches,
    pp_barrier,
    pp_rank,
    pp_size,
    rank,
    rdp_rank,
    rdp_size,
    recv_from,
    send,
    size,
    tp_rank,
    tp_size,
)
from .model import DistributedModel
from .optimizer import DistributedOptimizer
from .partition import PartitionError, partition, set_partition
from .state import state
from .step import StepOutput, is_tracing, step

__all__ = [
    "DP_GROUP",
    "MP_GROUP",
    "PP_GROUP",
    "RDP_GROUP",
    "TP_GROUP",
    "WORLD",
    "CommGroup",
    "DistributedModel",
    "DistributedOptimizer",
    "PartitionError",
    "RankType",
    "SMPCheckpointError",
    "StepOutput",
    "allgather",
    "amp",
    "barrier",
    "broadcast",
    "delay_param_initialization",
    "dp_barrier",
    "dp_rank",
    "dp_size",
    "get_dp_group",
    "get_dp_process_group",
    "get_mp_group",
    "get_mp_process_group",
    "get_pp_group",
    "get_pp_process_group",
    "get_rdp_group",
    "get_rdp_process_group",
    "get_tp_group",
    "get_tp_process_group",
    "get_world_group",
    "get_world_process_group",
    "init",
    "is_initialized",
    "is_tracing",
    "load",
    "local_rank",
    "local_size",
    "model",
    "model_creation",
    "mp_barrier",
    "mp_rank",
    "mp_size",
    "nn",
    "num_microbatches",
    "optimizers",
    "partition",
    "pp_barrier",
    "pp_rank",
    "pp_size",
    "rank",
    "rdp_rank",
    "rdp_size",
    "recv_from",
    "resume_from_checkpoint",
    "save",
    "save_checkpoint",
    "send",
    "set_activation_checkpointing",
    "set_partition",
    "size",
    "state",
    "step",
    "tp_rank",
    "tp_size",
    "utils",
]
