"""The public names of `import smdistributed.modelparallel.torch as smp`.

topology    which rank holds which partition of which replica; pure
groups      init, ranks and sizes, process groups, exchange of Python objects
state       the state of this process
partition   assigns modules to partitions: manually, or by auto_partition, which uses module_tree (the structure of the
            model), ties (modules that must stay together) and balance (even loads). partition_table shows the result
optimizer   DistributedOptimizer and its loss_scale
checkpoint  saves and loads partial and full checkpoints; files writes them atomically, gathering collects the state of
            all ranks
amp         GradScaler, and autocast for the options fp16 and bf16
creation    contexts for creating a model. tags marks its modules, delayed computes its values late; nn, optimizers and
            utils hold names that published scripts import
step        @smp.step and StepOutput: splits a batch into microbatches
model       DistributedModel, with local_part (what this rank has), model_state (state dicts), gradients and
            replica_buffers (exchanged between replicas), activation (checkpointing) and same_model (whether all ranks
            wrap the same one)
pipeline    runs a step on every rank. The coordinator (pp_rank 0) and the server (other ranks) exchange messages over a
            wire; codec encodes them, sends keeps what is being sent. The coordinator's threads take turns with a baton
            and record calls on a tape; backward replays it in reverse. remote has the tensors of other ranks, stand_in
            their modules, in_place handles arguments that modules change, seeds the random numbers. visits
            decides in which order ranks work, the outbox sends requests in that order
tensor      tensor parallelism
fully_sharded
            sharded data parallelism by torch's fully_shard. shards has the rows of a rank, state_owners the option
            shard_optimizer_state
watch       tells ranks when others end or fail, so that none waits forever; peers holds what is known of them
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
from .tensor.choice import set_tensor_parallelism, tensor_parallelism
from .tensor.registered import tp_register, tp_register_with_module

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
    "set_tensor_parallelism",
    "size",
    "state",
    "step",
    "tensor_parallelism",
    "tp_rank",
    "tp_register",
    "tp_register_with_module",
    "tp_size",
    "utils",
]
