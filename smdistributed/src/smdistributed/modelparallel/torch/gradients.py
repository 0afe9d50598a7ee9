"""Gradients of a step: summed, averaged over microbatches and replicas, and added to those of earlier steps."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from .delayed import share_states
from .groups import (
    DP_GROUP,
    MP_GROUP,
    RDP_GROUP,
    TP_GROUP,
    WORLD,
    CommGroup,
    dp_size,
    members,
    rdp_size,
    reduced,
    tp_size,
)
from .seeds import mixed
from .shards import own_rows
from .state import Members, state
from .tensor.split import split_of
from .watch import RankLost

BUCKET = 64 << 20
"""Bytes of gradients per all-reduce."""
_SPIN = 2e-3
"""Seconds to wait for an agreement without sleeping; most are shorter."""
_CLIPPING = "the clipping of gradients"
_NONE, _DENSE, _SPARSE = range(3)
"""Kinds of gradients; the larger one wins if replicas have different kinds."""


class ExchangeGroups(NamedTuple):
    """The groups in which this rank exchanges gradients; None: it does not.

    replicas: all ranks with the same partition. They agree on what follows. whole: the ranks that average the gradients
    of parameters which each of them has whole. shares: the ranks that average those of one share.
    """

    replicas: Members | None = None
    whole: Members | None = None
    shares: Members | None = None


def exchange_groups() -> ExchangeGroups:
    """The groups of this rank. fully_shard averages over the replicas itself."""
    if not state.parameters.ddp or dp_size() == 1:
        return ExchangeGroups()
    replicas = members(DP_GROUP)
    if state.parameters.sharded:
        return ExchangeGroups(replicas, whole=members(TP_GROUP) if tp_size() > 1 else None)
    return ExchangeGroups(replicas, replicas, members(RDP_GROUP) if rdp_size() > 1 else None)


class GradientExchange:
    """Averages one rank's gradients.

    passes: number of steps before the replicas exchange gradients. average: whether to average over the microbatches.
    """

    def __init__(self, groups: ExchangeGroups, *, passes: int = 1, average: bool = True) -> None:
        self._groups, self._passes, self._average = groups, passes, average
        self._steps = 0
        self._earlier: list[torch.Tensor | None] = []

    def before(self, parameters: Iterable[nn.Parameter]) -> None:
        """Set the gradients of earlier steps aside, because they are averaged already."""
        self._earlier = []
        for parameter in parameters:
            self._earlier.append(parameter.grad)
            parameter.grad = None

    def after(
        self, parameters: Sequence[nn.Parameter], microbatches: int, function: str | None, flags: Sequence[int]
    ) -> Sequence[int] | None:
        """Average the step's gradients. Every rank of the group calls it with its copies of the same parameters.

        function: the step function's name, None without a backward pass. RankLost if a step failed at another replica.
        Returns the maxima of `flags` over the replicas; None unless they exchange gradients after this step.
        """
        maxima = None
        for parameter in parameters:
            if parameter.grad is not None and self._average and microbatches > 1:
                parameter.grad.div_(microbatches)
        if function is not None:
            self._steps += 1
            if self._passes == 1:
                maxima = self._reduce(parameters, f"the step function {function}", flags)
        for parameter, earlier in zip(parameters, self._earlier, strict=True):
            if earlier is not None:
                parameter.grad = earlier if parameter.grad is None else earlier.add_(parameter.grad)
        self._earlier = []
        if function is not None and self._passes > 1 and self._steps % self._passes == 0:
            maxima = self._reduce(parameters, f"the step function {function}", flags)
        return maxima

    def outside_step(self, parameters: Sequence[nn.Parameter]) -> None:
        """Average the gradients after a backward pass outside a step. Averaging earlier ones again changes nothing."""
        self._steps += 1
        if self._steps % self._passes == 0:
            self._reduce(parameters, "loss.backward()", ())

    def _reduce(self, parameters: Sequence[nn.Parameter], call: str, flags: Sequence[int]) -> Sequence[int] | None:
        group, watch = self._groups.replicas, state.watch
        if group is None or not (parameters or flags):
            return None
        ranks = group.ranks
        with (
            watch.waiting("the exchange of gradients between replicas", ranks),
            watch.explain_errors(ranks, replicas=True),
        ):
            kinds, maxima = agree_on_exchange(group, call, parameters, flags)
            with_kinds = list(zip(parameters, kinds, strict=True))
            if self._groups.whole is not None:
                reduce_together([each for each in with_kinds if split_of(each[0]) is None], self._groups.whole)
            if self._groups.shares is not None:
                reduce_together([each for each in with_kinds if split_of(each[0]) is not None], self._groups.shares)
        return maxima


def reduce_together(parameters: Iterable[tuple[nn.Parameter, int]], group: Members) -> None:
    """Average the gradients of parameters over a group.

    With each comes the largest kind of gradient that a replica has: _NONE, _DENSE or _SPARSE.
    """
    gradients = []
    for parameter, kind in parameters:
        if kind == _SPARSE:
            parameter.grad = sparse_mean(parameter, group)
        elif kind == _DENSE:
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            gradients.append(own_rows(parameter.grad))
    for bucket in buckets(gradients, BUCKET):
        flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
        dist.all_reduce(flat, group=group.tensors)
        flat.div_(len(group.ranks))
        for gradient, part in zip(bucket, torch.split(flat, [each.numel() for each in bucket]), strict=True):
            gradient.copy_(part.view(gradient.shape))


class GradientsInOrder:
    """Sums one rank's gradients in the same order as one process that runs the microbatches one after the other.

    Sums of floats depend on the order. So the parts that a microbatch's backward pass adds to a parameter are summed
    first, and the sums are added in the order of the microbatches.
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
        """In this context the parameters' gradients are those of one backward pass."""
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
        """End a microbatch; its gradients are added after those of all earlier ones."""
        self._over.add(microbatch)
        while self._next in self._over:
            for _, gradients in sorted(self._kept.pop(self._next, {}).items()):
                for parameter, gradient in zip(self._parameters, gradients, strict=True):
                    if gradient is not None:
                        parameter.grad = gradient if parameter.grad is None else parameter.grad.add_(gradient)
            self._next += 1


def sparse_mean(parameter: nn.Parameter, group: Members) -> torch.Tensor:
    """The mean of a parameter's sparse gradients over the replicas, as nn.Embedding(sparse=True) has them.

    A replica may have none, or a dense one. NCCL has no sparse sums, so they go over gloo, through the host's memory.
    """
    gradient = parameter.grad
    if gradient is None:
        gradient = torch.zeros_like(parameter, device="cpu").to_sparse(1)
    gradient = (gradient if gradient.is_sparse else gradient.to_sparse(1)).cpu().coalesce()
    dist.all_reduce(gradient, group=group.control)
    return (gradient / len(group.ranks)).to(parameter.device)


def kind_of_gradient(parameter: nn.Parameter) -> int:
    """Which gradient a parameter has: _NONE, _DENSE or _SPARSE."""
    if parameter.grad is None:
        return _NONE
    return _SPARSE if parameter.grad.is_sparse else _DENSE


def agree_on_exchange(
    group: Members, call: str, parameters: Sequence[nn.Parameter], flags: Sequence[int], spin: float = 0.0
) -> tuple[Sequence[int], Sequence[int]]:
    """The maxima over all replicas of each parameter's kind of gradient, and of each flag.

    RankLost unless all replicas are in the same call. A replica whose step failed does not take part; the watch ends
    the wait then. spin: for how many seconds to wait without sleeping.
    """
    mark = mixed(call)
    head = [state.watch.failures, -state.watch.failures, mark, -mark]
    values = torch.tensor([*head, *map(kind_of_gradient, parameters), *flags], dtype=torch.int64)
    work = dist.all_reduce(values, dist.ReduceOp.MAX, group=group.control, async_op=True)
    state.watch.wait_for(work, group.ranks, values, spin=spin)
    # A pair holds the maxima of a value and of its negative: opposite only if all replicas have the same value.
    maxima: list[int] = values.tolist()
    if maxima[0] != -maxima[1]:
        failure = state.watch.failed_at(group.ranks) if state.watch.failures < maxima[0] else None
        raise RankLost(
            failure
            or "A step failed at this replica and not at the others, so they no longer train the same model; start the "
            "job again from its latest checkpoint."
        )
    if maxima[2] != -maxima[3]:
        raise RankLost(
            f"This replica runs {call}, but another replica runs something else; every replica must call the same "
            "step functions and layers, and optimizer.step(), in the same order, whatever its data."
        )
    end = len(head) + len(parameters)
    return maxima[len(head) : end], maxima[end:]


def gradients_group() -> CommGroup:
    """The kind of group whose ranks together have the gradients of the whole model."""
    return WORLD if state.parameters.sharded else MP_GROUP


def agree_if_sharded(call: str) -> None:
    """Like agree_on_call, before a sum over all ranks: it would meet the next agreement of a rank that does not sum."""
    if state.parameters.sharded:
        agree_on_call(call)


def agree_on_call(call: str) -> None:
    """RankLost unless all replicas begin the same step, layer or other call, which exchanges parameters or sums."""
    group = members(DP_GROUP)
    what = "a call with sharded parameters"
    with state.watch.waiting(what, group.ranks), state.watch.explain_errors(group.ranks, replicas=True):
        agree_on_exchange(group, call, (), (), _SPIN)


def clip(parameters: Iterable[nn.Parameter], max_norm: float, norm_type: float) -> float:
    """Scale this rank's gradients so that the norm over the model is at most `max_norm`; returns the old norm."""
    agree_if_sharded(_CLIPPING)
    copies = rdp_size() // state.parameters.sharded_data_parallel_degree if state.parameters.sharded else 1
    gradients, norms = [], []
    for parameter in parameters:
        if parameter.grad is not None and (gradient := own_rows(parameter.grad)).numel():
            gradients.append(gradient)
            own = torch.linalg.vector_norm(gradient, norm_type, dtype=torch.float32)
            # What several ranks of the group have counts once.
            holders = copies if split_of(parameter) else copies * tp_size()
            norms.append(own / holders ** (1 / norm_type))
    # One number per rank is read from the device, because every read waits for all work on it.
    norm = float(torch.linalg.vector_norm(torch.stack(norms), norm_type)) if norms else 0.0
    if norm_type == float("inf"):
        total = reduced(norm, dist.ReduceOp.MAX, _CLIPPING, gradients_group())
    else:
        total = reduced(norm**norm_type, dist.ReduceOp.SUM, _CLIPPING, gradients_group()) ** (1.0 / norm_type)
    if max_norm < total < float("inf"):
        for gradient in gradients:
            gradient.mul_(max_norm / (total + 1e-6))
    return total


def buckets(tensors: Iterable[torch.Tensor], size: int) -> Iterator[list[torch.Tensor]]:
    """Group consecutive tensors of one type and device up to `size` bytes; a larger tensor is alone; pure."""
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


def begin_equally(module: nn.Module, group: Members) -> None:
    """Give the parameters and buffers of all ranks the first one's values; the ranks may have used different seeds."""
    for tensor in share_states((*module.parameters(), *module.buffers()), group):
        broadcast_all([tensor], group.ranks[0], group.control if tensor.device.type == "cpu" else group.tensors)


def broadcast_all(tensors: Iterable[torch.Tensor], source: int, group: Any) -> None:
    """Copy the tensors of WORLD's rank `source` to every rank of the group."""
    for tensor in tensors:
        whole = tensor.detach().contiguous()
        dist.broadcast(whole, source, group=group)
        if whole.data_ptr() != tensor.data_ptr():
            with torch.no_grad():
                tensor.copy_(whole)
