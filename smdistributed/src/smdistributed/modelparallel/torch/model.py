"""DistributedModel: the script's model, each partition on its own rank from the first step on.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch.rst.
"""

import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.hooks import RemovableHandle

from . import model_state
from .activation import place_checkpoints
from .coordinator import OutsideStep, Schedule
from .delayed import computed, settle_buffers, settle_parameter, share_states
from .fully_sharded import shard
from .gathering import gathered
from .gradients import GradientExchange, agree_on_call, broadcast_all, clip, exchange_groups, gradients_group
from .groups import (
    DP_GROUP,
    PP_GROUP,
    CommGroup,
    SMPNotInitialized,
    backend_for,
    dp_size,
    get_dp_group,
    get_dp_process_group,
    get_pp_group,
    get_world_group,
    members,
    mp_size,
    pp_rank,
    pp_size,
    rank,
    tp_size,
)
from .local_part import LocalPart
from .messages import Hello
from .partition import owners, plan
from .partition_table import table
from .peers import STEP
from .pipeline import Alone, Bodies, First, Other, StepResult, put_stand_ins
from .replica_buffers import ReplicaBuffers
from .same_model import require_same_model
from .seeds import install_random_streams
from .shards import own_rows
from .stand_in import offload_parameter
from .state import state
from .tensor.exchange import agree_on_step, compare_exchanges
from .tensor.registered import replace_registered
from .tensor.start import distribute_equally, give_names
from .wire import Wire, direction_groups

Hook = Callable[[Any, Any], Any]


class DistributedModel(LocalPart):
    """The script's model, spread over the partitions. Wrapping it again returns the same object.

    Honoured: `backward_passes_per_step` (steps before replicas exchange gradients), `broadcast_buffers`,
    `average_grads_across_microbatches`. Other documented keywords have no effect. RuntimeError before `init` and for a
    second model.
    """

    module: nn.Module
    steps: int
    """Number of steps so far, including those before a resumed checkpoint; it seeds a step's random numbers."""

    def __new__(cls, module: nn.Module, *_: Any, **__: Any) -> "DistributedModel":
        if not state.initialized:
            raise SMPNotInitialized
        if isinstance(module, cls):
            return module
        if state.model is None:
            return super().__new__(cls)
        if state.model.module is not module:
            raise RuntimeError("smp.DistributedModel wraps one model of a script; another one is wrapped already.")
        return state.model  # type: ignore[no-any-return]

    def __init__(
        self,
        module: nn.Module,
        trace_device: str = "gpu",
        backward_passes_per_step: int = 1,
        average_grads_across_microbatches: bool = True,  # noqa: FBT001, FBT002
        broadcast_buffers: bool = True,  # noqa: FBT001, FBT002
        **accepted: Any,
    ) -> None:
        if state.model is self:
            return
        if not isinstance(module, nn.Module):
            raise TypeError(f"smp.DistributedModel takes a torch.nn.Module, not {type(module).__name__}.")
        if isinstance(module, nn.parallel.DistributedDataParallel):
            raise TypeError("smp.DistributedModel takes the model itself, without torch's DistributedDataParallel.")
        super().__init__()
        if unknown := set(accepted) - _ACCEPTED:
            raise TypeError(f"smp.DistributedModel has no argument {sorted(unknown)[0]!r}; leave it out.")
        require_same_model(module)
        self.module = module
        self.partitioned = False
        self._owners: dict[str, int] = {}
        self._plan: dict[str, int] = {}
        self._pipeline: Alone | First | Other = Alone()
        self._wire: Wire | None = None
        self._after_partition: OrderedDict[int, Hook] = OrderedDict()
        self._after_step: OrderedDict[int, Hook] = OrderedDict()
        self.steps = 0
        groups = exchange_groups()
        shared = broadcast_buffers and groups.replicas is not None
        self._replica_buffers = ReplicaBuffers(module, self.local_named_buffers, shared=shared)
        self._exchange = GradientExchange(
            groups, passes=backward_passes_per_step, average=average_grads_across_microbatches
        )
        state.model = self
        self._distributed: list[str] = []
        settle_buffers(module)
        replace_registered(module)
        give_names(module)
        if tp_size() > 1:
            self._distributed = distribute_equally(module)
        self.sharded: Mapping[int, nn.Parameter] = {}
        """The sharded parameters by the ids of those that they replaced."""
        if state.parameters.sharded:
            self.sharded = shard(module, _device())
            if state.optimizer is not None:
                state.optimizer.follow(self.sharded)
        if pp_size() == 1:
            self.partition()
            if groups.whole or groups.shares:
                self._exchange_outside_steps()

    def _exchange_outside_steps(self) -> None:
        """Exchange gradients at the end of each loss.backward() that a script calls without smp.step."""
        latest = -1  # backward pass; on a GPU the hooks run in another thread than the end of the pass

        def finish() -> None:
            self._exchange.outside_step([each for each in self.local_parameters() if each.requires_grad])

        def hook(_: torch.Tensor) -> None:
            nonlocal latest
            current = torch._C._current_graph_task_id()
            if not self.in_step and current != latest:
                latest = current
                torch.autograd.Variable._execution_engine.queue_callback(finish)

        for parameter in self.module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]

    # ---- the partition ----

    def partition(self) -> None:
        """Give each rank its part. Happens at the first step, or at once if there is only one partition."""
        if self.partitioned:
            return
        device = _device()
        self._plan = plan(self.module, state.parameters)
        self._owners = owners(self.module, self._plan)
        if pp_size() > 1:
            self._spread(device)
        remote_modules = [self.module.get_submodule(name) for name, index in self._plan.items() if index]
        install_random_streams(self.module, exclude=remote_modules)
        tensors = [*self.local_parameters(), *self.local_buffers()]
        if unequal := state.parameters.ddp and dp_size() > 1 and tp_size() == 1 and not self.sharded:
            tensors_to_send = share_states(tensors, members(DP_GROUP))
        with torch.no_grad():
            for tensor in tensors:
                settle_parameter(tensor)
                tensor.data = tensor.data.to(device)
        if unequal:
            broadcast_all(tensors_to_send, get_dp_group()[0], get_dp_process_group())
        self.partitioned = True
        self._replica_buffers.begin()
        for hook in list(self._after_partition.values()):
            hook(self, state.optimizer)
        self._after_partition.clear()

    def _spread(self, device: torch.device) -> None:
        if rank() == 0:
            print(table(self.module, self._plan, pp_size()), file=sys.stderr, flush=True)
        place_checkpoints(self.module, self._plan)
        ranks, own_partition = get_pp_group(), pp_rank()
        pipelines = state.topology.groups(state.topology.pp_group)
        over_gloo = backend_for(device.type) == "gloo"
        self._wire = Wire(
            members(PP_GROUP).control, None if over_gloo else direction_groups(pipelines, rank(), device), device
        )
        named: dict[str, Any] = {**dict(self.module.named_modules()), **dict(self.module.named_parameters())}
        for name, parameter in list(self.module.named_parameters()):
            if self._owners[name] != own_partition:
                offload_parameter(parameter, f"{name}, which is on partition {self._owners[name]}")
        parameters = state.parameters
        if own_partition == 0:
            simple = parameters.pipeline == "simple"
            opens_all = simple and parameters.active_microbatches is None
            open_microbatches = parameters.microbatches if opens_all else parameters.open_microbatches
            in_order = parameters.deterministic_server
            # The ranks of a tensor parallel group must make their exchanges in one order.
            schedule = Schedule(simple, open_microbatches, in_turn=in_order or tp_size() > 1, in_order=in_order)
            first = First(self._wire, ranks[1:], named, schedule)
            put_stand_ins(self.module, self._plan, ranks, own_partition, first.ask)
            self._pipeline = first
        else:
            put_stand_ins(self.module, self._plan, ranks, own_partition, _refuse)
            self._pipeline = Other(self._wire, ranks[0], named, in_order=parameters.deterministic_server)

    # ---- a step ----

    @property
    def in_step(self) -> bool:
        """Whether this thread runs the step function."""
        return self._pipeline.running

    def run_step(self, function: str, bodies: Bodies, batch: Callable[[], Any]) -> list[Any]:
        """Run a step function's microbatches on all ranks and return the result of each. For smp.step.

        batch: describes this rank's batch; the ranks of a tensor parallel group must agree on it.
        """
        seed = agree_on_step(function, self.steps, batch if pp_rank() == 0 else None)
        everyone, pipeline = get_world_group(), get_pp_group()
        with (
            state.watch.waiting(STEP, pipeline if self.partitioned else everyone),
            state.watch.explain_errors(everyone),
        ):
            self.partition()
        parameters = [each for each in self.local_parameters() if each.requires_grad]
        if self.sharded:
            pipeline = get_world_group()
            agree_on_call(f"the step function {function}")
        self._exchange.before(parameters)
        result = StepResult([], went_backward=False)
        self._replica_buffers.before_step()
        try:
            with state.watch.waiting(STEP, pipeline, busy=bool(self.sharded)), self._explained(pipeline):
                result = self._pipeline.run(Hello(function, self.steps), bodies, seed)
                compare_exchanges()
        except BaseException as error:
            for parameter in parameters:
                parameter.grad = None
            state.watch.step_failed("".join(traceback.format_exception(error)), self.steps)
            raise
        finally:
            self.steps += 1
        name, flags = function if result.went_backward else None, self._replica_buffers.after_step()
        if agreed := self._exchange.after(parameters, state.parameters.microbatches, name, flags):
            self._replica_buffers.share(agreed)
        hooks = list(self._after_step.values())
        self._after_step.clear()
        for hook in hooks:
            hook(self, state.optimizer)
        return result.outputs

    def _explained(self, ranks: Sequence[int]) -> AbstractContextManager[None]:
        """A context for a step, whose layers exchange parameters if they are sharded."""
        if not self.sharded:
            return nullcontext()
        return state.watch.explain_errors(ranks, replicas=True, mixed=True)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The model's forward. OutsideStep if no step runs and there is more than one partition."""
        if pp_size() > 1 and not self.in_step:
            raise OutsideStep
        return self.module(*args, **kwargs)

    def backward(
        self,
        tensors: torch.Tensor | Sequence[torch.Tensor],
        grad_tensors: torch.Tensor | Sequence[torch.Tensor | None] | None = None,
    ) -> None:
        """Like torch.autograd.backward, through all partitions; with more than one, only in a step."""
        if pp_size() > 1 and not self.in_step:
            raise OutsideStep("model.backward was called")
        listed = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        gradients = [grad_tensors] if isinstance(grad_tensors, torch.Tensor) else grad_tensors
        if state.loss_scale != 1.0:
            listed = [each.float() * state.loss_scale for each in listed]
        self._pipeline.backward(listed, gradients)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Clip the gradients by their norm over all partitions; returns the old norm. All ranks of a replica call it.

        torch's function of this name sees only one partition, so its norm is too small. Trainer prefers this method.
        """
        if state.loss_scale != 1.0:
            return torch.tensor(state.optimizer.clip_master_grads(max_norm, norm_type))
        return torch.tensor(clip(self.local_parameters(), max_norm, norm_type))

    def get_module(self) -> nn.Module:
        """The script's model."""
        return self.module

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    # ---- hooks ----

    def register_post_partition_hook(self, hook: Hook) -> RemovableHandle:
        """Call hook(model, optimizer) after partitioning, before the first forward; at once if already partitioned."""
        handle = RemovableHandle(self._after_partition)
        if self.partitioned:
            hook(self, state.optimizer)
        else:
            self._after_partition[handle.id] = hook
        return handle

    def register_post_step_hook(self, hook: Hook) -> RemovableHandle:
        """Call hook(model, optimizer) once, at the end of the next step."""
        handle = RemovableHandle(self._after_step)
        self._after_step[handle.id] = hook
        return handle

    def register_comm_hook(self, *_: Any) -> None:
        """NotImplementedError: replicas exchange gradients after the step, without hooks."""
        raise NotImplementedError(
            "register_comm_hook is not supported: replicas average their gradients after each step; leave it out."
        )

    def join(self, *_: Any, **__: Any) -> None:
        """NotImplementedError: every rank must take as many steps as the others."""
        raise NotImplementedError("model.join() is not supported; give every rank as many batches as the others.")

    # ---- state ----

    def local_state_dict(self, *_: Any, **__: Any) -> dict[str, Any]:
        """This rank's parameters and buffers, marked as partial; its rows of sharded ones."""
        entries = {name: own_rows(each) for name, each in self._local_entries().items()}
        return {**entries, model_state.IS_PARTIAL: True}

    def _local_entries(self) -> dict[str, Any]:
        return {name: each for name, each in model_state.entries(self.module).items() if self._is_local(name)}

    def state_dict(self, *args: Any, gather_to_rank0: bool = False, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """The state dict of the whole model.

        With several partitions it is on the CPU, and all ranks of a replica call it; with sharded parameters, all
        ranks. gather_to_rank0: only the first of them gets it, and the others an empty one; they need no memory for it.
        """
        to = [0] if gather_to_rank0 else None
        return self.gathered_state(gradients_group(), to, *args, **kwargs)

    def gathered_state(self, group: CommGroup, to: Sequence[int] | None, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """`state_dict` for some ranks of a group, which has all parts of the model; None: for all."""
        if not self.sharded and (mp_size() == 1 or (not self.partitioned and tp_size() == 1)):
            states: dict[str, Any] = self.module.state_dict(*args, **kwargs)
            states.update({name: computed(each) for name, each in states.items()})
            return states
        return model_state.whole(self.module, self._local_entries(), group, to)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, **_: Any) -> Any:  # type: ignore[override]  # noqa: FBT001, FBT002
        """Load a partial or full state dict, before the first step or later. Every rank calls it.

        RuntimeError for names that are missing or unknown, unless `strict` is false.
        """
        states = {name: each for name, each in state_dict.items() if name != model_state.IS_PARTIAL}
        if state_dict.get(model_state.IS_PARTIAL) and pp_size() > 1:
            for part in gathered(states, PP_GROUP, "model.load_state_dict()") or ():
                states = {**part, **states}
        if (self.partitioned and pp_size() > 1) or tp_size() > 1 or self.sharded:
            return model_state.load(self.module, states, self._is_local, strict=strict)
        return self.module.load_state_dict(states, strict=strict)

    def cpu(self) -> "DistributedModel":
        """NotImplementedError if the model is spread over GPUs; state_dict() gathers it on the CPU."""
        if pp_size() > 1 and self.partitioned and _device().type != "cpu":
            raise NotImplementedError(
                "model.cpu() is not supported with more than one partition; use model.state_dict()."
            )
        return self

    def to(self, *args: Any, **kwargs: Any) -> "DistributedModel":
        """Moves the module; once it is spread over ranks, each part stays on its device."""
        if not (self.partitioned and pp_size() > 1) and not self.sharded:
            self.module.to(*args, **kwargs)
        return self


_ACCEPTED = {
    "trace_execution_times", "overlapping_allreduce", "bucket_cap_mb", "trace_memory_usage", "gradient_as_bucket_view",
    "static_graph",
}  # fmt: skip


def _device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def _refuse(names: tuple[str, ...], owner: int, args: Any, kwargs: Any) -> Any:
    raise OutsideStep(f"{names[0]}, which is on rank {owner}, was called on rank {dist.get_rank()}")
