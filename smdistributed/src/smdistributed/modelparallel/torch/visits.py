"""In which order the ranks of a pipeline run the visits of the microbatches; pure.

A microbatch visits ranks: the first rank, the owners of its modules in the forward pass, the first rank for the loss,
the owners again in the backward pass, and the first rank at the end. Every rank runs its visits one after the other, so
an order in which a rank waits for a visit while it could run another one wastes time. The order here is that of a
simulated step, in which a backward visit takes as long as two forward visits. It depends on nothing that is measured,
so that all transfers of all ranks have one order, as NCCL needs it.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

FORWARD, BACKWARD, STOP = 10, 20, 1
"""How long a visit takes in the simulated step. A stop is a visit of the first rank between the first and the last."""
Turn = tuple[int, int]
"""A microbatch, and the index of one of its visits."""


class Visit(NamedTuple):
    """A part of a microbatch that runs on one rank without waiting for another one."""

    rank: int
    backward: bool


@functools.lru_cache(maxsize=64)
def order_of_visits(
    visits: tuple[Visit, ...], microbatches: int, at_a_time: int, *, forward_first: bool
) -> Mapping[int, Sequence[Turn]]:
    """The turns of each rank, if every microbatch makes these visits.

    A rank that could run several visits takes a stop first, then a backward visit, and among these the earliest
    microbatch; with forward_first, a forward visit before a backward one. Of the first rank at most `at_a_time`
    microbatches are open, and otherwise one less on each following rank. So backward visits begin early, and the last
    ranks, which need few open microbatches, keep few activations.
    """
    step = _SimulatedStep(visits, microbatches, at_a_time, forward_first=forward_first)
    while step.run_next():
        pass
    return step.turns


class _SimulatedStep:
    def __init__(self, visits: Sequence[Visit], microbatches: int, at_a_time: int, *, forward_first: bool) -> None:
        self._visits, self._forward_first = visits, forward_first
        ranks = list(dict.fromkeys(each.rank for each in visits))
        self._last = {each.rank: index for index, each in enumerate(visits)}
        self._most = {rank: at_a_time if forward_first else max(1, at_a_time - at) for at, rank in enumerate(ranks)}
        self._free, self._open = dict.fromkeys(ranks, 0), {rank: set[int]() for rank in ranks}
        self._ready: dict[Turn, int] = {(microbatch, 0): 0 for microbatch in range(microbatches)}
        """When each turn can begin at the earliest."""
        self.turns: dict[int, list[Turn]] = {rank: [] for rank in ranks}

    def run_next(self) -> bool:
        """Run the next visit; false if there is none."""
        turn = min(self._ready, key=self._preference, default=None)
        if turn is None:
            return False
        (microbatch, index), visit = turn, self._visits[turn[1]]
        end = max(self._ready.pop(turn), self._free[visit.rank]) + self._duration(index)
        self._free[visit.rank] = end
        self.turns[visit.rank].append(turn)
        self._open[visit.rank].add(microbatch)
        if index == self._last[visit.rank]:
            self._open[visit.rank].remove(microbatch)
        if index + 1 < len(self._visits):
            self._ready[microbatch, index + 1] = end
        return True

    def _preference(self, turn: Turn) -> tuple[float, bool, bool, int]:
        microbatch, index = turn
        rank, backward = self._visits[index]
        start = max(self._ready[turn], self._free[rank])
        full = len(self._open[rank]) >= self._most[rank] and microbatch not in self._open[rank]
        return math.inf if full else start, not self._is_stop(index), backward == self._forward_first, microbatch

    def _is_stop(self, index: int) -> bool:
        return self._visits[index].rank == self._visits[0].rank and 0 < index < len(self._visits) - 1

    def _duration(self, index: int) -> int:
        return STOP if self._is_stop(index) else BACKWARD if self._visits[index].backward else FORWARD
