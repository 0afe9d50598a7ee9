"""Gradients of a step: summed up, averaged over its microbatches and the replicas, added to those of earlier steps."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .groups import reduced
from .seeds import mixed
from .state import state
from .watch import RankLost

BUCKET = 64 << 20
"""Bytes that go over the wire at once."""
_CLIPPING = "the clipping of gradients"


class GradientExchange:
    """One rank's parameters. `group`: the replicas' process group, None without data parallelism.

    `passes`: how many steps add up before the replicas exchange gradients; `average`: over the microbatches.
    """

    def __init__(self, group: Any, *, passes: int = 1, average: bool = True) -> None:
        self._group, self._passes, self._average = group, passes, average
        self._done = 0
        self._earlier: list[torch.Tensor | None] = []

    def before(self, parameters: Iterable[nn.Parameter]) -> None:
        """Set the gradients of earlier steps aside, for they are averaged already."""
        self._earlier = []
        for parameter in parameters:
            self._earlier.append(parameter.grad)
            parameter.grad = None

    def after(self, parameters: Sequence[nn.Parameter], microbatches: int, function: str | None) -> None:
        """With the step's gradients in place. Every rank of the group calls it, with its own of the same parameters.

        `function`: the step function's name, if it went backward. RankLost if a step failed at another replica.
        """
        for parameter in parameters:
            if parameter.grad is not None and self._average and microbatches > 1:
                parameter.grad.div_(microbatches)
        if function is not None:
            self._done += 1
            if self._passes == 1:
                self._reduce(parameters, function)
        for parameter, earlier in zip(parameters, self._earlier, strict=True):
            if earlier is not None:
                parameter.grad = earlier if parameter.grad is None else earlier.add_(parameter.grad)
        self._earlier = []
        if function is not None and self._passes > 1 and self._done % self._passes == 0:
            self._reduce(parameters, function)

    def _reduce(self, parameters: Sequence[nn.Parameter], function: str) -> None:
        if self._group is None or not parameters:
            return
        ranks = dist.get_process_group_ranks(self._group)
        watch = state.watch
        with watch.waiting("the exchange of gradients between replicas", ranks), watch.named(ranks, replicas=True):
            self._reduce_together(parameters, agreed(self._group, ranks, function, parameters))

    def _reduce_together(self, parameters: Sequence[nn.Parameter], there: Sequence[int]) -> None:
        """`there`: whether any replica has a gradient of a parameter."""
        gradients = []
        for parameter, anywhere in zip(parameters, there, strict=True):
            if anywhere and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if anywhere and parameter.grad is not None:
                gradients.append(parameter.grad)
        replicas = dist.get_world_size(self._group)
        for bucket in buckets(gradients, BUCKET):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            dist.all_reduce(flat, group=self._group)
            flat.div_(replicas)
            for gradient, part in zip(bucket, torch.split(flat, [each.numel() for each in bucket]), strict=True):
                gradient.copy_(part.view(gradient.shape))


class GradientsInOrder:
    """Adds up one rank's gradients as one process does that runs the microbatches one after the other.

    Sums of floats depend on their order. So what the backward pass of a microbatch adds to a parameter, in as many
    parts as there are calls of it, is summed up first, and added to those of earlier microbatches in their order.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self.begin()

    def begin(self) -> None:
        """A step begins."""
        self._kept: dict[int, dict[int, list[torch.Tensor | None]]] = {}
        self._next, self._over = 0, set[int]()

    @contextmanager
    def part(self, microbatch: int, backward_pass: int) -> Iterator[None]:
        """Within it, gradients are this pass'."""
        passes = self._kept.setdefault(microbatch, {})
        before = [parameter.grad for parameter in self._parameters]
        own = passes.get(backward_pass, [None] * len(self._parameters))
        self._put(own)
        try:
            yield
        finally:
            passes[backward_pass] = [parameter.grad for parameter in self._parameters]
            self._put(before)

    def _put(self, gradients: Sequence[torch.Tensor | None]) -> None:
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient

    def end(self, microbatch: int) -> None:
        """A microbatch is over: its gradients are added as soon as all earlier ones are."""
        self._over.add(microbatch)
        while self._next in self._over:
            for _, gradients in sorted(self._kept.pop(self._next, {}).items()):
                for parameter, gradient in zip(self._parameters, gradients, strict=True):
                    if gradient is not None:
                        parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
            self._next += 1


def agreed(group: Any, ranks: Sequence[int], function: str, parameters: Sequence[nn.Parameter]) -> Sequence[int]:
    """For each parameter, whether any replica has a gradient; RankLost unless all come from the same step.

    A replica in which the step failed is not here: this one hears of it while it waits.
    """
    mark = mixed(function)
    head = [state.watch.failures, -state.watch.failures, mark, -mark]
    told = torch.tensor([*head, *(parameter.grad is not None for parameter in parameters)], dtype=torch.int64)
    told = told if "cpu" in dist.get_backend_config(group) else told.to(parameters[0].device)
    work = dist.all_reduce(told, dist.ReduceOp.MAX, group=group, async_op=True)
    state.watch.wait_for_replicas(work, ranks)
    found: list[int] = told.tolist()
    if found[0] != -found[1]:
        elsewhere = state.watch.failed_at(ranks) if state.watch.failures < found[0] else None
        raise RankLost(
            elsewhere
            or "A step failed at this replica and not at the others, so that they no longer train the same model; "
            "start the job again, from its latest checkpoint."
        )
    if found[2] != -found[3]:
        raise RankLost(
            f"This replica ends the step function {function}, another one ends another; every replica must train by "
            "the same step functions in the same order."
        )
    return found[4:]


def clip(gradients: Sequence[torch.Tensor], max_norm: float, norm_type: float) -> float:
    """Scale this rank's gradients so that the norm over all partitions is `max_norm` at most; the norm before."""
    norms = [float(torch.linalg.vector_norm(gradient.float(), norm_type)) for gradient in gradients]
    if norm_type == float("inf"):
        total = reduced(max(norms, default=0.0), dist.ReduceOp.MAX, _CLIPPING)
    else:
        total = reduced(sum(norm**norm_type for norm in norms), dist.ReduceOp.SUM, _CLIPPING) ** (1.0 / norm_type)
    if max_norm < total < float("inf"):
        for gradient in gradients:
            gradient.mul_(max_norm / (total + 1e-6))
    return total


def buckets(tensors: Iterable[torch.Tensor], size: int) -> Iterator[list[torch.Tensor]]:
    """Neighbours of one type and device, up to `size` bytes together, a larger tensor alone; pure."""
    bucket: list[torch.Tensor] = []
    filled = 0
    for tensor in tensors:
        nbytes = tensor.numel() * tensor.element_size()
        alike = not bucket or (bucket[0].dtype, bucket[0].device) == (tensor.dtype, tensor.device)
        if bucket and (filled + nbytes > size or not alike):
            yield bucket
            bucket, filled = [], 0
        bucket.append(tensor)
        filled += nbytes
    if bucket:
        yield bucket


def broadcast_all(tensors: Iterable[torch.Tensor], source: int, group: Any) -> None:
    """Every rank of the group gets the tensors of rank `source` of the world."""
    for tensor in tensors:
        whole = tensor.detach().contiguous()
        dist.broadcast(whole, source, group=group)
        if whole.data_ptr() != tensor.data_ptr():
            with torch.no_grad():
                tensor.copy_(whole)
