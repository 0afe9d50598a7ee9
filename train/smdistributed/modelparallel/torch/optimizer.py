"""DistributedOptimizer: any optimizer of torch, whose state dicts know that each rank has a part.

The optimizer keeps its object and stays an instance of its own class, for learning rate schedulers look at both. Its
parameter groups name the whole model's parameters on every rank, and only those of this rank's partition ever have
gradients: a state's index is its parameter's place in the groups, the same on all ranks.

Source: SageMaker Python SDK, doc/api/training/smp_versions/latest/smd_model_parallel_pytorch.rst.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from .groups import PP_GROUP, allgather, get_pp_process_group, pp_size
from .loss_scale import LossScale, loss_scale
from .state import state
from .trees import on_cpu

IS_PARTIAL = "_smp_is_partial"


class DistributedOptimizer(torch.optim.Optimizer):
    """`optimizer`, with this class among its own. The other arguments count with fp16 only.

    `static_loss_scale`: what losses are multiplied with; `dynamic_loss_scale`: it changes by itself, by
    `dynamic_loss_args`: init_scale, scale_factor, scale_window, min_scale, delayed_shift, consecutive_hysteresis.
    """

    _loss_scale: LossScale
    _unscaled: bool
    _pending: tuple[Mapping[int, Any], bool] | None
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
        gradients = [parameter.grad for _, parameter in self._local() if parameter.grad is not None]
        for gradient in gradients:
            gradient.div_(self.loss_scale)
        finite = all(bool(torch.isfinite(gradient).all()) for gradient in gradients)
        self.overflow = _reduced(0.0 if finite else 1.0, dist.ReduceOp.MAX) > 0
        self._unscaled = True

    def clip_master_grads(self, max_norm: float, norm_type: float = 2.0) -> float:
        """Scale the gradients down to a norm over all partitions, which torch's function does not see; the norm before.

        Every rank calls it, after the step function and before `step`.
        """
        self._unscale()
        gradients = [parameter.grad for _, parameter in self._local() if parameter.grad is not None]
        norms = [float(torch.linalg.vector_norm(gradient.float(), norm_type)) for gradient in gradients]
        if norm_type == float("inf"):
            total = _reduced(max(norms, default=0.0), dist.ReduceOp.MAX)
        else:
            total = _reduced(sum(norm**norm_type for norm in norms), dist.ReduceOp.SUM) ** (1.0 / norm_type)
        if max_norm < total < float("inf"):
            for gradient in gradients:
                gradient.mul_(max_norm / (total + 1e-6))
        return total

    def local_state_dict(self, gather_if_shard: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002
        """The state of this rank's parameters, marked as partial."""
        whole = super().state_dict()
        here = {place for place, _ in self._local()}
        kept = {place: values for place, values in whole["state"].items() if place in here}
        return {**whole, "state": kept, IS_PARTIAL: True}

    def state_dict(self) -> dict[str, Any]:
        """The state of all parameters, on the CPU. Every rank of a replica calls it."""
        if pp_size() == 1:
            return super().state_dict()
        local = self.local_state_dict()
        if self._pending is not None:
            return {**super().state_dict(), "state": dict(self._gathered(*self._pending))}
        gathered: dict[int, Any] = {}
        for part in allgather(on_cpu(local["state"]), PP_GROUP):
            gathered.update(part)
        return {"state": dict(sorted(gathered.items())), "param_groups": local["param_groups"]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a state, partial or whole; each rank keeps what is its own, as soon as the model is partitioned."""
        given = {name: value for name, value in state_dict.items() if name != IS_PARTIAL}
        if pp_size() == 1:
            super().load_state_dict(given)
            return
        # Learning rates count at once, for schedulers read them before the first step.
        super().load_state_dict({**given, "state": {}})
        waiting = self._pending is not None
        self._pending = (given["state"], bool(state_dict.get(IS_PARTIAL)))
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
        found = self._gathered(*self._pending)
        here = {place for place, _ in self._local()}
        kept = {place: values for place, values in found.items() if place in here}
        self._pending = None
        super().load_state_dict({**super().state_dict(), "state": kept})

    def _gathered(self, states: Mapping[int, Any], partial: bool) -> Mapping[int, Any]:  # noqa: FBT001
        """What this rank needs of the states: partial ones of all ranks only where the partition has changed since."""
        if not partial:
            return states
        needs = {place for place, _ in self._local()}
        told = allgather((needs, set(states)), PP_GROUP)
        everywhere = set().union(*(has for _, has in told))
        if all(wants & everywhere <= has for wants, has in told):
            return states
        merged: dict[int, Any] = {}
        for part in allgather(on_cpu(states), PP_GROUP):
            merged.update(part)
        return merged

    def loss_scale_state(self) -> dict[str, Any]:
        """Where the loss scale stands, for a checkpoint."""
        return self._loss_scale.state_dict()

    def load_loss_scale_state(self, values: Mapping[str, Any]) -> None:
        """Go on with a checkpoint's loss scale."""
        self._loss_scale.load_state_dict(values)


def _reduced(value: float, operation: Any) -> float:
    """Over the partitions of this replica."""
    total = torch.tensor(value, dtype=torch.float64)
    if pp_size() > 1:
        dist.all_reduce(total, operation, group=get_pp_process_group())
    return float(total)
