"""Exchanges between the ranks of a tensor parallel group, all in one order on all ranks.

Every rank of the group runs the same layers on the same tensors, so all make the same exchanges in the same order. If a
script makes them differ, gradients would be wrong without an error. So a fingerprint of the exchanges so far is
compared before each backward pass and at the end of each microbatch, in a process group of its own: gloo aborts a
process that gets a message of another size than it expects. Outside a step, where the ranks have agreed on nothing, it
is compared before each exchange.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from ..groups import TP_GROUP, backend_for, exchanged, members, pp_size, tp_rank, tp_size
from ..peers import STEP
from ..seeds import mixed
from ..state import state
from ..step import described
from ..watch import RankLost
from .thread import current_microbatch

_SPIN = 2e-3
"""Seconds to wait for an exchange without sleeping; most are shorter."""


class DifferentExchanges(RuntimeError):
    """The ranks of a tensor parallel group made different exchanges. shape: of this rank's tensor outside a step."""

    def __init__(self, shape: Sequence[int] | None = None) -> None:
        if shape is None:
            super().__init__(
                "The ranks of a tensor parallel group called their distributed layers in different orders, so this "
                "step's gradients would be wrong; the step function must do the same on all of them, whatever its data."
            )
        else:
            super().__init__(
                "The ranks of a tensor parallel group called a distributed layer in different orders or with batches "
                f"of different shapes (here a tensor of {tuple(shape)}), or with prescaled_batch with different "
                "batches; do the same on all of them, whatever its data, and pad batches to one length."
            )


class Exchanges:
    """This rank's exchanges in its tensor parallel group. comparisons: a process group over gloo."""

    def __init__(self, comparisons: Any) -> None:
        self._comparisons = comparisons
        self._order = 0

    def begin_step(self) -> None:
        """A step begins."""
        self._order = 0

    def note_batch(self, tensors: Iterable[torch.Tensor]) -> None:
        """Outside a step with prescaled_batch: what the next comparison compares includes this rank's batch."""
        if outside_a_step():
            self._order = mixed(self._order, *described(list(tensors)))

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum of the ranks' tensors."""
        total = tensor.detach().clone(memory_format=torch.contiguous_format)
        self._run("sum", total, lambda group: dist.all_reduce(total, group=group, async_op=True))
        return total

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The ranks' tensors, which have one shape, by rank."""
        own = tensor.detach().contiguous()
        plain = own.view(torch.uint8) if own.dtype == torch.bool else own
        parts = [torch.empty_like(plain) for _ in range(tp_size())]
        self._run("gather", plain, lambda group: dist.all_gather(parts, plain, group=group, async_op=True))
        return [each.view(own.dtype) for each in parts]

    def compare(self, shape: Sequence[int] | None = None) -> None:
        """DifferentExchanges unless all ranks made the same exchanges since the step began.

        shape: of the tensor that a rank is about to exchange outside a step.
        """
        values = torch.tensor([self._order, -self._order])
        ranks = members(TP_GROUP).ranks
        with state.watch.waiting("a comparison of distributed layers", ranks), state.watch.explain_errors(ranks):
            work = dist.all_reduce(values, dist.ReduceOp.MAX, group=self._comparisons, async_op=True)
            state.watch.wait_for(work, ranks, values, spin=_SPIN)
        # The maxima of a value and of its negative are opposite only if all ranks have the same value.
        if int(values[0]) != -int(values[1]):
            raise DifferentExchanges(shape)

    def _run(self, kind: str, tensor: torch.Tensor, start: Callable[[Any], Any]) -> None:
        """Start an exchange and wait for it. RankLost if a step fails on another rank of the group."""
        self._order = mixed(self._order, kind, str(tuple(tensor.shape)), str(current_microbatch()))
        if outside_a_step():
            self._order = mixed(self._order, str(torch._C._current_graph_task_id() >= 0))  # whether in a backward pass
            self.compare(tensor.shape)
        group = members(TP_GROUP)
        what = f"exchange {self._order:x} of a distributed layer"
        with state.watch.waiting(what, group.ranks), state.watch.explain_errors(group.ranks):
            work = start(group.tensors)
            if backend_for(tensor.device.type) == "gloo":
                state.watch.wait_for(work, group.ranks, tensor, spin=_SPIN)
            else:
                work.wait()


def make_exchanges() -> Exchanges | None:
    """The exchanges of this rank, None without tensor parallelism. Every rank calls it."""
    if tp_size() == 1:
        return None
    made = None
    for ranks in state.topology.groups(state.topology.tp_group):
        group = dist.new_group(list(ranks), backend="gloo")
        made = Exchanges(group) if dist.get_rank() in ranks else made
    return made


def outside_a_step() -> bool:
    """Whether the script calls the model without smp.step, which it can if there is one partition."""
    return pp_size() == 1 and not state.model.in_step


def exchanges() -> Exchanges:
    """The exchanges of this rank; only with tensor parallelism."""
    found: Exchanges = state.exchanges
    return found


def compare_exchanges() -> None:
    """DifferentExchanges unless all ranks of the tensor parallel group made the same exchanges in this step."""
    if state.exchanges is not None:
        state.exchanges.compare()


def agree_on_step(function: str, steps: int, batch: Callable[[], Any] | None) -> int:
    """The seed of a step; without tensor parallelism this rank's own.

    batch: describes this rank's batch, None on a rank that serves. RuntimeError if the ranks of the group call
    different steps, or have batches of different shapes.
    """
    if state.exchanges is None:
        return torch.initial_seed()
    if state.watch.failures:  # a rank may have left the failed step in the middle of an exchange
        raise RankLost(
            "A step failed on this rank, and its tensor parallel group can't go on after that; start the job again "
            "from its latest checkpoint."
        )
    state.exchanges.begin_step()
    own = function, steps, batch() if batch else None
    everyone = exchanged((own, torch.initial_seed()), TP_GROUP, STEP)
    if any(other != own for other, _ in everyone):
        described = zip(members(TP_GROUP).ranks, (each for each, _ in everyone), strict=True)
        raise RuntimeError(
            "The ranks of a tensor parallel group must call the same step with batches of one shape, and with "
            f"prescaled_batch with one batch; here {'; '.join(f'rank {rank} has {each}' for rank, each in described)}: "
            "pad batches to one length, and give every rank as many."
        )
    return int(everyone[0][1])


def own_part(size: int) -> slice:
    """The rows of this rank in the batch of its tensor parallel group. size: rows of a rank."""
    return slice(size * tp_rank(), size * (tp_rank() + 1))
