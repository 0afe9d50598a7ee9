"""DistributedOptimizer: any torch optimizer, with state dicts for a model that is spread over ranks.

The optimizer stays the same object and an instance of its class, because learning rate schedulers check both. On every
rank its parameter groups contain the whole model's parameters, but only those of the rank's partition get gradients. So
a state's index, its parameter's place in the groups, is the same on all ranks.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch.rst.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from .gathering import gathered
from .gradients import agree_if_sharded, clip, gradients_group
from .groups import MP_GROUP, PP_GROUP, WORLD, CommGroup, exchanged, group_ranks, mp_size, pp_size, reduced, tp_rank
from .loss_scale import LossScale, loss_scale
from .model_state import IS_PARTIAL, contributes, gathered_by_key, own_share
from .shards import marked_rows, own_rows, sharded_like
from .state import state
from .state_owners import StateOwners
from .tensor.split import split_of

_PARTITIONS = "_smp_partitions"
_LOSS_SCALE = "_smp_loss_scale"
_STEPS = "_smp_steps"


class _States(NamedTuple):
    """Parameter's place → optimizer state; of one rank's parameters if `partial`, else of all."""

    states: Mapping[int, Any]
    partial: bool


class DistributedOptimizer(torch.optim.Optimizer):
    """The passed optimizer, whose class is extended by this one. The other arguments have an effect only with fp16.

    static_loss_scale: factor of the loss. dynamic_loss_scale: adapt the factor, with `dynamic_loss_args`: init_scale,
    scale_factor, scale_window, min_scale, delayed_shift, consecutive_hysteresis.
    """

    _loss_scale: LossScale
    _unscaled: bool
    _pending: _States | None
    """States that were loaded before the model was partitioned."""
    overflow: bool
    """Whether the latest step was skipped because its gradients were not finite."""
    _owners: StateOwners | None
    """With the option shard_optimizer_state, once the model is partitioned."""
    _global_grad_norm: float
    """The norm of the latest step's gradients with sharded data parallelism; published scripts print it."""

    def __new__(cls, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> "DistributedOptimizer":
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(
                f"smp.DistributedOptimizer takes an optimizer of torch.optim, not {type(optimizer).__name__}."
            )
        if not isinstance(optimizer, cls):
            base = type(optimizer)
            optimizer.__class__ = type(base.__name__, (cls, base), {"__module__": base.__module__})
            # A scheduler that was created earlier has wrapped `step` on the object, which would bypass this class.
            optimizer.__dict__.pop("step", None)
        return optimizer  # type: ignore[return-value]  # it is one now

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        static_loss_scale: float | None = 1.0,
        dynamic_loss_scale: bool = False,  # noqa: FBT001, FBT002
        dynamic_loss_args: Mapping[str, Any] | None = None,
        **more_loss_args: Any,
    ) -> None:
        if state.optimizer is self:
            return
        arguments = {**(dynamic_loss_args or {}), **more_loss_args}
        self._loss_scale = loss_scale(static_loss_scale, dynamic=dynamic_loss_scale, arguments=arguments)
        self._unscaled, self._pending, self.overflow, self._owners = False, None, False, None
        state.optimizer = self
        if state.model is not None:
            self.follow(state.model.sharded)

    def follow(self, sharded: Mapping[int, torch.nn.Parameter]) -> None:
        """Take sharded parameters in the place of those whose ids these are, for which the optimizer was created."""
        replaced = [(each, sharded[id(each)]) for each in self._in_order() if id(each) in sharded]
        for group in self.param_groups:
            group["params"] = [sharded.get(id(each), each) for each in group["params"]]
        for old, new in replaced:
            if old in self.state:
                self.state[new] = sharded_like(own_share(self.state.pop(old), split_of(new)), new)

    @property
    def optimizer(self) -> "DistributedOptimizer":
        """Itself: the wrapper and the wrapped optimizer are one object."""
        return self

    @property
    def loss_scale(self) -> float:
        """The factor by which model.backward multiplies the loss."""
        return self._loss_scale.scale if state.parameters.fp16 else 1.0

    def _in_order(self) -> list[torch.nn.Parameter]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _owned(self) -> list[tuple[int, torch.nn.Parameter]]:
        """The parameters of which this rank has the optimizer's state, with their places."""
        if not (state.parameters.shard_optimizer_state and state.partitioned):
            return self._local()
        self._owners = self._owners or StateOwners([parameter for _, parameter in self._local()])
        return [(place, parameter) for place, parameter in self._local() if self._owners.owns(parameter)]

    def _local(self) -> list[tuple[int, torch.nn.Parameter]]:
        """This rank's parameters with their places."""
        if not state.partitioned or pp_size() == 1:
            return list(enumerate(self._in_order()))
        local_ids = {id(parameter) for _, parameter in state.model.local_named_parameters()}
        return [(place, parameter) for place, parameter in enumerate(self._in_order()) if id(parameter) in local_ids]

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Update this rank's parameters. With fp16 the step is skipped on all ranks if gradients overflowed on one.

        With sharded data parallelism gradients are clipped before.
        """
        self._opt_called = True  # schedulers check it
        result = None
        if closure is not None and state.parameters.states_sharded:
            with torch.enable_grad():
                result, closure = closure(), None
        self._unscale()
        if not self.overflow:
            if state.parameters.sharded:
                limit = state.parameters.sdp_gradient_clipping or float("inf")
                self._global_grad_norm = clip(self._in_order(), limit, 2.0)
            updated = self._update(closure)
            result = updated if result is None else result
        if state.parameters.fp16:
            self._loss_scale.update(overflow=self.overflow)
        self._unscaled = False
        return result

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Like torch's add_param_group."""
        super().add_param_group(param_group)
        if (owners := self.__dict__.get("_owners")) is not None:
            owners.add([each for _, each in self._local() if not owners.knows(each)])

    def _update(self, closure: Callable[[], float] | None) -> Any:
        owned = {id(parameter) for _, parameter in self._owned()}
        if self._owners is None:
            return super().step(closure)
        for parameter in [each for each in self.state if id(each) not in owned]:
            del self.state[parameter]  # it was loaded before the model was partitioned
        return self._owners.update(super().step)

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002
        """Like torch's zero_grad."""
        self._unscaled = False
        super().zero_grad(set_to_none)

    def _unscale(self) -> None:
        """Divide the gradients by the loss scale, once per step, and check whether they are finite on all ranks."""
        if self._unscaled or not state.parameters.fp16:
            return
        gradients = [own_rows(parameter.grad) for _, parameter in self._local() if parameter.grad is not None]
        for gradient in gradients:
            gradient.div_(self.loss_scale)
        finite = not gradients or bool(torch.stack([torch.isfinite(gradient).all() for gradient in gradients]).all())
        overflow = 0.0 if finite else 1.0
        agree_if_sharded("optimizer.step()")
        self.overflow = reduced(overflow, dist.ReduceOp.MAX, "optimizer.step()", gradients_group()) > 0
        self._unscaled = True

    def clip_master_grads(self, max_norm: float, norm_type: float = 2.0) -> float:
        """Like DistributedModel.clip_grad_norm_, after removing the loss scale (with fp16)."""
        self._unscale()
        return clip([parameter for _, parameter in self._local()], max_norm, norm_type)

    def local_state_dict(self, gather_if_shard: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002
        """The state of this rank's parameters, or of all before the model is partitioned; marked as partial.

        Of a sharded state it has this rank's part, whatever `gather_if_shard` says: other ranks need not call it.
        """
        kept = {place: {name: own_rows(each) for name, each in values.items()} for place, values in self._own().items()}
        return {**super().state_dict(), "state": kept, **self._extra(), IS_PARTIAL: True, _PARTITIONS: pp_size()}

    def _own(self) -> Mapping[int, Any]:
        """The states that this rank has, by place; loaded ones if the model is not partitioned yet."""
        if self._pending is not None:
            return self._pending.states
        places = {place for place, _ in self._owned()}
        return {place: values for place, values in super().state_dict()["state"].items() if place in places}

    def state_dict(self, *, gather_to_rank0: bool = False) -> dict[str, Any]:
        """The state of all parameters.

        With several partitions it is on the CPU, and all ranks of a replica call it; with a sharded state, all ranks.
        gather_to_rank0: only the first of them gets it, and the others one without states.
        """
        return self.gathered_state(states_group(), [0] if gather_to_rank0 else None)

    def gathered_state(self, group: CommGroup, to: Sequence[int] | None) -> dict[str, Any]:
        """`state_dict` for some ranks of a group, which has all parts of the state; None: for all."""
        whole = {**super().state_dict(), **self._extra()}
        if mp_size() == 1 and not state.parameters.states_sharded:
            return whole
        partial = state.partitioned if self._pending is None else self._pending.partial
        states = self._merged(self._own(), "optimizer.state_dict()", (group, to)) if partial else dict(self._own())
        return {**whole, "state": states}

    def _extra(self) -> dict[str, Any]:
        """State that torch's optimizers do not have: the loss scale, and the step count, which seeds random numbers."""
        scale: dict[str, Any] = {_LOSS_SCALE: self._loss_scale.state_dict()} if state.parameters.fp16 else {}
        return scale | ({_STEPS: state.model.steps} if state.model is not None else {})

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a partial or full state; each rank keeps its part once the model is partitioned.

        RuntimeError for a partial state of a job with another number of partitions.
        """
        partial = bool(state_dict.get(IS_PARTIAL))
        if partial and state_dict.get(_PARTITIONS, pp_size()) != pp_size():
            raise RuntimeError(
                f"The optimizer's state is a partial one of {state_dict[_PARTITIONS]} partitions, and this job has "
                f"{pp_size()}; use as many, or load a full state dict."
            )
        if state.parameters.fp16 and _LOSS_SCALE in state_dict:
            self._loss_scale.load_state_dict(state_dict[_LOSS_SCALE])
        if state.model is not None and _STEPS in state_dict:
            state.model.steps = state_dict[_STEPS]
        states = {"state": state_dict["state"], "param_groups": state_dict["param_groups"]}
        if pp_size() == 1:
            super().load_state_dict({**states, "state": self._own_shares(states["state"])})
            return
        # Load the learning rates now, because schedulers read them before the first step.
        super().load_state_dict({**states, "state": {}})
        hook_registered = self._pending is not None
        self._pending = _States(states["state"], partial)
        if state.partitioned:
            self._load_pending()
        elif not hook_registered:
            if state.model is None:
                raise RuntimeError(
                    "The optimizer's state can be loaded only after smp.DistributedModel; wrap the model first."
                )
            state.model.register_post_partition_hook(self._load_pending)

    def _load_pending(self, *_: Any) -> None:
        """Load the pending states once the model is partitioned; the arguments are a hook's."""
        if self._pending is None:
            return
        states = self._pending.states
        local_places = {place for place, _ in self._owned()}
        if self._pending.partial:
            # Gather the states of all ranks only if the partition has changed since they were saved.
            what = "optimizer.load_state_dict()"
            group = WORLD if state.parameters.states_sharded else PP_GROUP
            places = exchanged((local_places, set(states)), group, what)
            everywhere = set().union(*(available for _, available in places))
            if not all(needed & everywhere <= available for needed, available in places):
                parts = gathered(dict(states), group, what) or ()
                states = self._together(zip(group_ranks(group), parts, strict=True))
        kept = {place: values for place, values in states.items() if place in local_places}
        self._pending = None
        super().load_state_dict({**super().state_dict(), "state": self._own_shares(kept)})

    def _together(self, parts: Iterable[tuple[int, Mapping[int, Any]]]) -> dict[int, Any]:
        """The states of other ranks that this one may need: not those of other shares."""
        parameters = self._in_order()
        return {
            place: each
            for other, part in parts
            for place, each in part.items()
            if not split_of(parameters[place]) or state.topology.coordinate("T", other) == tp_rank()
        }

    def _own_shares(self, states: Mapping[int, Any]) -> dict[int, Any]:
        """The states with this rank's shares and rows of tensors that belong to whole parameters."""
        parameters = self._in_order()
        owned = {place for place, _ in self._owned()} if state.parameters.shard_optimizer_state else set(states)
        return {
            place: sharded_like(own_share(each, split_of(parameters[place])), parameters[place])
            for place, each in states.items()
            if place in owned
        }

    def _merged(
        self, states: Mapping[int, Any], what: str, where: tuple[CommGroup, Sequence[int] | None]
    ) -> dict[int, Any]:
        """The states of all ranks, on the CPU; empty on ranks that do not get them. `what` is the call.

        where: the group, and the places in it of the ranks that get them. RuntimeError if the ranks' parameters differ.
        """
        group = where[0]
        splits = {place: split_of(parameter) for place, parameter in enumerate(self._in_order())}
        own_shapes = [
            split.shape if split else tuple(parameter.shape)
            for split, parameter in zip(splits.values(), self._in_order(), strict=True)
        ]
        shapes = exchanged(own_shapes, group, what)
        if any(each != shapes[0] for each in shapes):
            raise RuntimeError(
                "The ranks' optimizers have different parameters, so their states can't be merged; create the "
                "optimizer from model.parameters() on every rank, or use local_state_dict()."
            )
        one_copy = state.parameters.shard_optimizer_state  # each state has one owner
        own = {
            place: marked_rows(each)
            for place, each in states.items()
            if one_copy or (contributes(group) and (tp_rank() == 0 or splits[place]))
        }
        return dict(sorted((gathered_by_key(own, splits, what, where) or {}).items()))


def states_group() -> CommGroup:
    """The kind of group whose ranks together have the whole state."""
    return WORLD if state.parameters.states_sharded else MP_GROUP
