"""DistributedOptimizer: any optimizer of torch, whose state dicts know that each rank has a part.

The optimizer keeps its object and stays an instance of its own class, for learning rate schedulers look at both. Its
parameter groups name the whole model's parameters on every rank, and only those of this rank's partition ever have
gradients: a state's index is its parameter's place in the groups, the same on all ranks.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch.rst.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from .gradients import clip
from .groups import PP_GROUP, exchanged, pp_size, reduced
from .loss_scale import LossScale, loss_scale
from .model_state import IS_PARTIAL, on_cpu
from .state import state

_PARTITIONS = "_smp_partitions"
_LOSS_SCALE = "_smp_loss_scale"
_STEPS = "_smp_steps"


class _States(NamedTuple):
    """Optimizer states by their parameters' places: of all parameters, or of one rank's."""

    states: Mapping[int, Any]
    partial: bool


class DistributedOptimizer(torch.optim.Optimizer):
    """`optimizer`, with this class among its own. The other arguments count with fp16 only.

    `static_loss_scale`: what losses are multiplied with; `dynamic_loss_scale`: it changes by itself, by
    `dynamic_loss_args`: init_scale, scale_factor, scale_window, min_scale, delayed_shift, consecutive_hysteresis.
    """

    _loss_scale: LossScale
    _unscaled: bool
    _pending: _States | None
    """Loaded, and waiting for the partition."""
    overflow: bool
    """Whether the gradients of the latest step were not finite, so that it was left out."""

    def __new__(cls, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> "DistributedOptimizer":
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(
                f"smp.DistributedOptimizer takes an optimizer of torch.optim, not {type(optimizer).__name__}."
            )
        if not isinstance(optimizer, cls):
            base = type(optimizer)
            optimizer.__class__ = type(base.__name__, (cls, base), {"__module__": base.__module__})
            # What a scheduler that was made before put there; it would pass this class by.
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
        """Itself: the wrapper and what it wraps are one."""
        return self

    @property
    def loss_scale(self) -> float:
        """What model.backward multiplies a loss with."""
        return self._loss_scale.scale if state.parameters.fp16 else 1.0

    def _in_order(self) -> list[torch.nn.Parameter]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _local(self) -> list[tuple[int, torch.nn.Parameter]]:
        """This rank's parameters, by their place."""
        if not state.partitioned or pp_size() == 1:
            return list(enumerate(self._in_order()))
        here = {id(parameter) for _, parameter in state.model.local_named_parameters()}
        return [(place, parameter) for place, parameter in enumerate(self._in_order()) if id(parameter) in here]

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Update this rank's parameters. With fp16 a step whose gradients overflowed on any rank is left out on all."""
        self._opt_called = True  # what schedulers look for
        if not state.parameters.fp16:
            return super().step(closure)
        self._unscale()
        done = None if self.overflow else super().step(closure)
        self._loss_scale.update(overflow=self.overflow)
        self._unscaled = False
        return done

    def zero_grad(self, set_to_none: bool = True) -> None:  # noqa: FBT001, FBT002
        """As torch's."""
        self._unscaled = False
        super().zero_grad(set_to_none)

    def _unscale(self) -> None:
        """Divide the gradients by the loss scale, once a step, and find out whether they are finite on all ranks."""
        if self._unscaled or not state.parameters.fp16:
            return
        gradients = self._gradients()
        for gradient in gradients:
            gradient.div_(self.loss_scale)
        finite = all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
        self.overflow = reduced(0.0 if finite else 1.0, dist.ReduceOp.MAX, "optimizer.step()") > 0
        self._unscaled = True

    def clip_master_grads(self, max_norm: float, norm_type: float = 2.0) -> float:
        """As clip_grad_norm_ of DistributedModel, but with fp16 the loss scale is taken out before."""
        self._unscale()
        return clip(self._gradients(), max_norm, norm_type)

    def _gradients(self) -> list[torch.Tensor]:
        return [parameter.grad for _, parameter in self._local() if parameter.grad is not None]

    def local_state_dict(self, gather_if_shard: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002
        """The state of this rank's parameters, marked as partial; of all before the model is partitioned."""
        whole = super().state_dict()
        if self._pending is not None:
            kept = self._pending.states
        else:
            here = {place for place, _ in self._local()}
            kept = {place: values for place, values in whole["state"].items() if place in here}
        return {**whole, "state": kept, **self._extra(), IS_PARTIAL: True, _PARTITIONS: pp_size()}

    def state_dict(self) -> dict[str, Any]:
        """The state of all parameters, on the CPU. Every rank of a replica calls it."""
        whole = {**super().state_dict(), **self._extra()}
        if pp_size() == 1:
            return whole
        part = self._pending or _States(self.local_state_dict()["state"], partial=state.partitioned)
        states = self._merged(part.states, "optimizer.state_dict()") if part.partial else dict(part.states)
        return {**whole, "state": states}

    def _extra(self) -> dict[str, Any]:
        """What torch's optimizers do not have: the loss scale, and the steps, of which random numbers depend."""
        found: dict[str, Any] = {_LOSS_SCALE: self._loss_scale.state_dict()} if state.parameters.fp16 else {}
        return found | ({_STEPS: state.model.steps} if state.model is not None else {})

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a state, partial or whole; each rank keeps what is its own, as soon as the model is partitioned.

        RuntimeError for a partial one of a job with another number of partitions.
        """
        partial = bool(state_dict.get(IS_PARTIAL))
        if partial and state_dict.get(_PARTITIONS, pp_size()) != pp_size():
            raise RuntimeError(
                f"The optimizer's state is a partial one of {state_dict[_PARTITIONS]} partitions, and this job has "
                f"{pp_size()}; take as many, or load a full state dict."
            )
        if state.parameters.fp16 and _LOSS_SCALE in state_dict:
            self._loss_scale.load_state_dict(state_dict[_LOSS_SCALE])
        if state.model is not None and _STEPS in state_dict:
            state.model.steps = state_dict[_STEPS]
        given = {"state": state_dict["state"], "param_groups": state_dict["param_groups"]}
        if pp_size() == 1:
            super().load_state_dict(given)
            return
        # Learning rates count at once, for schedulers read them before the first step.
        super().load_state_dict({**given, "state": {}})
        waiting = self._pending is not None
        self._pending = _States(given["state"], partial)
        if state.partitioned:
            self._load_pending()
        elif not waiting:
            if state.model is None:
                raise RuntimeError("The optimizer's state is loaded after smp.DistributedModel; wrap the model first.")
            state.model.register_post_partition_hook(self._load_pending)

    def _load_pending(self, *_: Any) -> None:
        """With the partition known; the arguments are those of a hook."""
        if self._pending is None:
            return
        found = self._pending.states
        here = {place for place, _ in self._local()}
        if self._pending.partial:
            # Of all ranks only where the partition has changed since.
            what = "optimizer.load_state_dict()"
            told = exchanged((here, set(found)), PP_GROUP, what)
            everywhere = set().union(*(has for _, has in told))
            if not all(wants & everywhere <= has for wants, has in told):
                found = self._merged(found, what)
        kept = {place: values for place, values in found.items() if place in here}
        self._pending = None
        super().load_state_dict({**super().state_dict(), "state": kept})

    def _merged(self, states: Mapping[int, Any], what: str) -> dict[int, Any]:
        """All ranks' states, on the CPU, in the call `what`. RuntimeError if a place is not one parameter on all."""
        shapes = [tuple(parameter.shape) for parameter in self._in_order()]
        parts = exchanged((shapes, on_cpu(states)), PP_GROUP, what)
        if any(each != parts[0][0] for each, _ in parts):
            raise RuntimeError(
                "The ranks' optimizers have different parameters, so that their states can't be put together; make the "
                "optimizer of model.parameters() on every rank, or use local_state_dict()."
            )
        merged: dict[int, Any] = {}
        for _, part in parts:
            merged.update(part)
        return dict(sorted(merged.items()))
