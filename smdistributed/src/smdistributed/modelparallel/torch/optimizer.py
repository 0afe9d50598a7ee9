"""DistributedOptimizer: any torch optimizer, with state dicts for a model that is spread over ranks.

The optimizer stays the same object and an instance of its class, because learning rate schedulers check both. On every
rank its parameter groups contain the whole model's parameters, but only those of the rank's partition get gradients. So
a state's index, its parameter's place in the groups, is the same on all ranks.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch.rst.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from .gathering import gathered
from .gradients import clip
from .groups import MP_GROUP, PP_GROUP, exchanged, mp_size, pp_size, reduced, tp_rank
from .loss_scale import LossScale, loss_scale
from .model_state import IS_PARTIAL, gathered_by_key, own_share
from .state import state
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
        self._unscaled, self._pending, self.overflow = False, None, False
        state.optimizer = self

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

    def _local(self) -> list[tuple[int, torch.nn.Parameter]]:
        """This rank's parameters with their places."""
        if not state.partitioned or pp_size() == 1:
            return list(enumerate(self._in_order()))
        local_ids = {id(parameter) for _, parameter in state.model.local_named_parameters()}
        return [(place, parameter) for place, parameter in enumerate(self._in_order()) if id(parameter) in local_ids]

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Update this rank's parameters. With fp16 the step is skipped on all ranks if gradients overflowed on one."""
        self._opt_called = True  # schedulers check it
        if not state.parameters.fp16:
            return super().step(closure)
        self._unscale()
        result = None if self.overflow else super().step(closure)
        self._loss_scale.update(overflow=self.overflow)
        self._unscaled = False
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002
        """Like torch's zero_grad."""
        self._unscaled = False
        super().zero_grad(set_to_none)

    def _unscale(self) -> None:
        """Divide the gradients by the loss scale, once per step, and check whether they are finite on all ranks."""
        if self._unscaled or not state.parameters.fp16:
            return
        gradients = self._gradients()
        for gradient in gradients:
            gradient.div_(self.loss_scale)
        finite = not gradients or bool(torch.stack([torch.isfinite(gradient).all() for gradient in gradients]).all())
        self.overflow = reduced(0.0 if finite else 1.0, dist.ReduceOp.MAX, "optimizer.step()") > 0
        self._unscaled = True

    def clip_master_grads(self, max_norm: float, norm_type: float = 2.0) -> float:
        """Like DistributedModel.clip_grad_norm_, after removing the loss scale (with fp16)."""
        self._unscale()
        return clip([parameter for _, parameter in self._local()], max_norm, norm_type)

    def _gradients(self) -> list[torch.Tensor]:
        return [parameter.grad for _, parameter in self._local() if parameter.grad is not None]

    def local_state_dict(self, gather_if_shard: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002
        """The state of this rank's parameters, or of all before the model is partitioned; marked as partial."""
        whole = super().state_dict()
        if self._pending is not None:
            kept = self._pending.states
        else:
            local_places = {place for place, _ in self._local()}
            kept = {place: values for place, values in whole["state"].items() if place in local_places}
        return {**whole, "state": kept, **self._extra(), IS_PARTIAL: True, _PARTITIONS: pp_size()}

    def state_dict(self, *, gather_to_rank0: bool = False) -> dict[str, Any]:
        """The state of all parameters; with several partitions it is on the CPU, and all ranks of a replica call it.

        gather_to_rank0: only the first rank of the replica gets it, and the others one without states.
        """
        return self.gathered_state([0] if gather_to_rank0 else None)

    def gathered_state(self, to: Sequence[int] | None) -> dict[str, Any]:
        """`state_dict` for some ranks: those of this replica in `to`, all if it is None."""
        whole = {**super().state_dict(), **self._extra()}
        if mp_size() == 1:
            return whole
        part = self._pending or _States(self.local_state_dict()["state"], partial=state.partitioned)
        states = self._merged(part.states, "optimizer.state_dict()", to) if part.partial else dict(part.states)
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
        local_places = {place for place, _ in self._local()}
        if self._pending.partial:
            # Gather the states of all ranks only if the partition has changed since they were saved.
            what = "optimizer.load_state_dict()"
            places = exchanged((local_places, set(states)), PP_GROUP, what)
            everywhere = set().union(*(available for _, available in places))
            if not all(needed & everywhere <= available for needed, available in places):
                parts = gathered(dict(states), PP_GROUP, what) or ()
                states = {place: each for part in parts for place, each in part.items()}
        kept = {place: values for place, values in states.items() if place in local_places}
        self._pending = None
        super().load_state_dict({**super().state_dict(), "state": self._own_shares(kept)})

    def _own_shares(self, states: Mapping[int, Any]) -> dict[int, Any]:
        """The states with this rank's shares of tensors that belong to whole parameters."""
        parameters = self._in_order()
        return {place: own_share(each, split_of(parameters[place])) for place, each in states.items()}

    def _merged(self, states: Mapping[int, Any], what: str, to: Sequence[int] | None) -> dict[int, Any]:
        """The states of all ranks, on the CPU; empty on ranks that are not in `to`. `what` is the call.

        RuntimeError if the ranks' parameters differ.
        """
        splits = {place: split_of(parameter) for place, parameter in enumerate(self._in_order())}
        own_shapes = [
            split.shape if split else tuple(parameter.shape)
            for split, parameter in zip(splits.values(), self._in_order(), strict=True)
        ]
        shapes = exchanged(own_shapes, MP_GROUP, what)
        if any(each != shapes[0] for each in shapes):
            raise RuntimeError(
                "The ranks' optimizers have different parameters, so their states can't be merged; create the "
                "optimizer from model.parameters() on every rank, or use local_state_dict()."
            )
        own = {place: each for place, each in states.items() if tp_rank() == 0 or splits[place]}
        return dict(sorted((gathered_by_key(own, splits, what, to) or {}).items()))
