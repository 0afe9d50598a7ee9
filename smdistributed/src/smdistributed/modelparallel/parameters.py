"""Parses and checks the options of `distribution={"smdistributed": {"modelparallel": {"parameters": …}}}`.

Pure, and without torch: the launcher reads the options before any rank starts, and `smp.init` in every rank. An option
is honoured, accepted with a log line that says why it has no effect, or refused with the reason. All problems are
reported together.

Source: SageMaker Python SDK, doc/api/training/smd_model_parallel_general.rst.
"""

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

Kind = Callable[[Any], Any]
PLACEMENTS = ("cluster", "spread", *("".join(letters) for letters in permutations("DPT")))


class ParameterError(ValueError):
    """Invalid options; `problems` has one sentence per problem."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        heading = f"{len(problems)} options of model parallelism are wrong:"
        super().__init__("\n".join(problems if len(problems) == 1 else [heading, *problems]))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParallelParameters:
    """The checked options of a job.

    remarks: log lines, such as one per accepted option without effect. Options with other remarks are equal.
    default_partition: for modules that no `smp.partition` assigns; None with the automatic partition.
    active_microbatches: how many microbatches may be open at a time; None: all with the pipeline `simple`, else
    pipeline_parallel_degree + 2.
    ddp_dist_backend: gloo: tensors of GPUs are exchanged through the host's memory; auto is nccl.
    offload_activations: activation checkpoints keep their inputs in the host's memory.
    sdp_gradient_clipping: the largest norm of gradients with sharded data parallelism; 0: they are not clipped.
    """

    pipeline_parallel_degree: int = 1
    microbatches: int = 1
    pipeline: str = "interleaved"
    placement_strategy: str = "cluster"
    ddp: bool = False
    auto_partition: bool = True
    default_partition: int | None = None
    active_microbatches: int | None = None
    prescaled_batch: bool = False
    deterministic_server: bool = False
    fp16: bool = False
    bf16: bool = False
    tensor_parallel_degree: int = 1
    sharded_data_parallel_degree: int = 1
    sdp_gradient_clipping: float = 1.0
    shard_optimizer_state: bool = False
    offload_activations: bool = False
    ddp_dist_backend: str = "auto"
    remarks: tuple[str, ...] = field(default=(), compare=False)

    @property
    def partitions(self) -> int:
        """pipeline_parallel_degree under its older name, which scripts read."""
        return self.pipeline_parallel_degree

    @property
    def sharded(self) -> bool:
        """Whether parameters are sharded over replicas."""
        return self.sharded_data_parallel_degree > 1

    @property
    def states_sharded(self) -> bool:
        """Whether each replica has only a part of the optimizer's state."""
        return self.sharded or self.shard_optimizer_state

    @property
    def open_microbatches(self) -> int:
        """How many microbatches may be open at a time, unless `simple` opens all."""
        return self.active_microbatches or self.pipeline_parallel_degree + 2


def _whole(low: int) -> Kind:
    def read(value: Any) -> int:
        if isinstance(value, str):
            value = float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != math.floor(value) or value < low:
            raise ValueError
        return int(value)

    read.__doc__ = f"a whole number of at least {low}"
    return read


def _degree_or_off(value: Any) -> int:
    """a whole number of at least 0, where 0 and 1 turn it off"""
    return max(1, int(_whole(0)(value)))


def _norm(value: Any) -> float:
    """a number of at least 0"""
    if isinstance(value, bool) or not 0.0 <= float(value) < math.inf:
        raise ValueError
    return float(value)


def _weight(value: Any) -> float:
    """a number from 0.0 to 1.0"""
    if isinstance(value, bool) or not 0.0 <= float(value) <= 1.0:
        raise ValueError
    return float(value)


def _flag(value: Any) -> bool:
    """true or false"""
    if isinstance(value, str):
        value = {"true": True, "false": False, "1": True, "0": False}[value.strip().lower()]
    if value not in (True, False):
        raise ValueError
    return bool(value)


def _choice(*values: str) -> Kind:
    def read(value: Any) -> str:
        return {each.lower(): each for each in values}[value.strip().lower()]

    read.__doc__ = f"one of {', '.join(values)}"
    return read


def _anything(value: Any) -> Any:
    """anything"""
    return value


_DEGREE = _whole(1)
HONOURED: Mapping[str, Kind] = {
    "pipeline_parallel_degree": _DEGREE,
    "partitions": _DEGREE,
    "microbatches": _DEGREE,
    "pipeline": _choice("interleaved", "simple"),
    "placement_strategy": _choice(*PLACEMENTS),
    "ddp": _flag,
    "auto_partition": _flag,
    "default_partition": _whole(0),
    "active_microbatches": _DEGREE,
    "prescaled_batch": _flag,
    "deterministic_server": _flag,
    "fp16": _flag,
    "bf16": _flag,
    "ddp_dist_backend": _choice("auto", "nccl", "gloo"),
    "tensor_parallel_degree": _DEGREE,
    "sharded_data_parallel_degree": _degree_or_off,
    "sdp_gradient_clipping": _norm,
    "shard_optimizer_state": _flag,
    "offload_activations": _flag,
}
"""Option → its values."""

_BY_FSDP = "torch's fully_shard, which shards parameters, decides this itself"
_BY_PARAMETERS = "the automatic partition balances parameters"
_ALL_REDUCE = "gradients are exchanged once, after each step"
ACCEPTED: Mapping[str, tuple[Kind, str]] = {
    "optimize": (_choice("speed", "memory"), _BY_PARAMETERS),
    "memory_weight": (_weight, _BY_PARAMETERS),
    "contiguous": (_flag, "partitions are contiguous wherever the model allows it"),
    "skip_tracing": (_flag, "the model is not traced"),
    "fp16_params": (_flag, "parameters keep the type that the script gives them"),
    "activation_loading_horizon": (_whole(1), "activations are loaded when the backward pass needs them"),
    "activation_checkpointing": (_anything, "it is not an option: call smp.set_activation_checkpointing on a module"),
    "delayed_parameter_initialization": (_anything, "smp.delay_param_initialization and smp.model_creation delay"),
    "parameter_server": (_anything, "it is for TensorFlow, and not an option of model parallelism"),
    "processes_per_host": (_anything, "it is an option of mpi in distribution, and belongs there"),
    "ddp_port": (_anything, "the launcher chooses the port"),
    "fast_mode": (_anything, "consecutive modules on one partition exchange nothing in any case"),
    "static_mode": (_anything, "every step is scheduled by itself"),
    "overlapping_allreduce": (_anything, _ALL_REDUCE),
    "bucket_cap_mb": (_anything, _ALL_REDUCE),
    "gradient_as_bucket_view": (_anything, _ALL_REDUCE),
    "sdp_reduce_bucket_size": (_anything, _BY_FSDP),
    "sdp_param_persistence_threshold": (_anything, _BY_FSDP),
    "sdp_max_live_parameters": (_anything, _BY_FSDP),
    "sdp_hierarchical_allgather": (_anything, _BY_FSDP),
}
"""Option → its values, and why it has no effect here."""

_VERSION_2 = "is an option of version 2 of the library, and this is version 1;"
_MODEL_ARGUMENT = "is an argument of smp.DistributedModel; give it there."
REFUSED: Mapping[str, str] = {
    "horovod": "is for TensorFlow, and this library is for PyTorch; use ddp instead.",
    "xla": "is for TensorFlow, and this library is for PyTorch; remove it.",
    "hybrid_shard_degree": f"{_VERSION_2} use sharded_data_parallel_degree.",
    "sm_activation_offloading": f"{_VERSION_2} use offload_activations.",
    "fsdp_cache_flush_warnings": f"{_VERSION_2} remove it.",
    "allow_empty_shards": f"{_VERSION_2} remove it.",
    "expert_parallel_degree": f"{_VERSION_2} remove it.",
    "context_parallel_degree": f"{_VERSION_2} remove it.",
    "random_seed": f"{_VERSION_2} remove it, and call torch.manual_seed.",
    "trace_device": _MODEL_ARGUMENT,
    "trace_execution_times": _MODEL_ARGUMENT,
    "backward_passes_per_step": _MODEL_ARGUMENT,
    "average_grads_across_microbatches": _MODEL_ARGUMENT,
    "num_microbatches": "is not an option; use microbatches.",
}


def parse(mapping: Mapping[str, Any], world_size: int | None = None) -> ModelParallelParameters:
    """The checked options; ParameterError with all problems.

    world_size: the number of ranks if it is known; the degrees must divide it.
    """
    problems: list[str] = []
    remarks: list[str] = []
    values: dict[str, Any] = {}
    for name, value in mapping.items():
        if name in HONOURED:
            _read(name, value, HONOURED[name], (values, problems))
        elif name in ACCEPTED:
            kind, reason = ACCEPTED[name]
            taken: dict[str, Any] = {}
            _read(name, value, kind, (taken, problems))
            remarks += [f"{name} changes nothing here: {reason}."] if taken.get(name) not in (None, False) else []
        elif name.startswith("_"):
            remarks.append(f"{name} changes nothing here: it tunes the inside of AWS's library.")
        else:
            problems.append(_refusal(name))
    _one_degree(values, problems, remarks)
    parameters = ModelParallelParameters(**values)
    problems += [*_contradictions(parameters), *_sharding_contradictions(parameters)]
    if "sdp_gradient_clipping" in values and not parameters.sharded:
        remarks.append("sdp_gradient_clipping changes nothing here: sharded_data_parallel_degree is not above 1.")
    if world_size is not None:
        problems += _indivisible(parameters, world_size)
        remarks += _replicas(parameters, world_size)
    if problems:
        raise ParameterError(tuple(problems))
    return replace(parameters, remarks=tuple(remarks))


def _read(name: str, value: Any, kind: Kind, into: tuple[dict[str, Any], list[str]]) -> None:
    """Parse a value, or report what it must be; a JSON null keeps the default."""
    values, problems = into
    if value is None:
        return
    try:
        values[name] = kind(value)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        problems.append(f"{name} is {value!r}; it must be {kind.__doc__}.")


def _refusal(name: str) -> str:
    if name in REFUSED:
        return f"{name} {REFUSED[name]}"
    known = [*HONOURED, *ACCEPTED]
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else "remove it."
    return f"{name} is not an option of smdistributed modelparallel; {hint}"


def _one_degree(values: dict[str, Any], problems: list[str], remarks: list[str]) -> None:
    """`partitions` is the older name of pipeline_parallel_degree.

    A public notebook sets it to the product with tensor_parallel_degree; then pipeline_parallel_degree counts.
    """
    older = values.pop("partitions", None)
    if older is None:
        return
    degree = values.setdefault("pipeline_parallel_degree", older)
    tensor = values.get("tensor_parallel_degree", 1)
    if degree != older and older == degree * tensor:
        remarks.append(
            f"partitions is {older}, the product of pipeline_parallel_degree {degree} and tensor_parallel_degree "
            f"{tensor}; the model has {degree} partitions."
        )
    elif degree != older:
        problems.append(
            f"partitions is {older} and pipeline_parallel_degree is {degree}, two names of one option; keep one."
        )


def _contradictions(parameters: ModelParallelParameters) -> list[str]:
    problems = []
    degree, default = parameters.pipeline_parallel_degree, parameters.default_partition
    if not parameters.auto_partition and default is None:
        problems.append(
            "auto_partition is false, so default_partition is needed, for modules that no smp.partition assigns; add "
            '"default_partition": 0.'
        )
    if default is not None and default >= degree:
        problems.append(
            f"default_partition is {default}, but {degree} partitions are numbered from 0 to {degree - 1}; choose one "
            "of these."
        )
    if (tensor := parameters.tensor_parallel_degree) > 1 and not parameters.ddp:
        problems.append(f"tensor_parallel_degree is {tensor}, which needs ddp; set ddp to true.")
    if parameters.fp16 and parameters.bf16:
        problems.append("fp16 and bf16 are both true; choose one.")
    return problems


def _sharding_contradictions(parameters: ModelParallelParameters) -> list[str]:
    problems = []
    degree, partitions = parameters.sharded_data_parallel_degree, parameters.pipeline_parallel_degree
    if degree > 1 and partitions > 1:
        problems.append(
            f"sharded_data_parallel_degree is {degree} and the model has {partitions} partitions; set one of them to 1."
        )
    if degree > 1 and parameters.shard_optimizer_state:
        problems.append(
            f"sharded_data_parallel_degree is {degree}, which shards the optimizer's state too; set "
            "shard_optimizer_state to false."
        )
    if parameters.states_sharded and not parameters.ddp:
        name = f"sharded_data_parallel_degree is {degree}" if degree > 1 else "shard_optimizer_state is true"
        problems.append(f"{name}, which needs ddp; set ddp to true.")
    return problems


def _indivisible(parameters: ModelParallelParameters, world_size: int) -> list[str]:
    pipeline, tensor = parameters.pipeline_parallel_degree, parameters.tensor_parallel_degree
    sharding = parameters.sharded_data_parallel_degree
    replicas, rest = divmod(world_size, pipeline * tensor)
    if rest == 0 and replicas % sharding == 0:
        return []
    if rest == 0:
        return [
            f"sharded_data_parallel_degree is {sharding}, which does not divide the {replicas} replicas of this job; "
            "change it, the number of ranks per host, or of hosts."
        ]
    if tensor > 1:
        return [
            f"pipeline_parallel_degree {pipeline} times tensor_parallel_degree {tensor} is {pipeline * tensor}, which "
            f"does not divide the {world_size} ranks of this job; change a degree, the number of ranks per host, or of "
            "hosts."
        ]
    return [
        f"{pipeline} partitions do not divide the {world_size} ranks of this job; change the number of partitions, of "
        "ranks per host, or of hosts."
    ]


def _replicas(parameters: ModelParallelParameters, world_size: int) -> list[str]:
    replicas = world_size // (parameters.pipeline_parallel_degree * parameters.tensor_parallel_degree)
    if replicas < 2 or parameters.ddp:
        return []
    return [
        f"ddp is not set, so the {replicas} replicas of the model exchange no gradients and train apart; set it to "
        "true to train one model."
    ]
