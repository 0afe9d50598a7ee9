"""Which rank holds which partition of which replica; pure arithmetic.

A rank has a coordinate in each kind of parallelism: D (reduced data parallel: the replica), P (pipeline: the partition)
and T (tensor). A placement is an order of these letters; the right-most coordinate changes fastest.

Source: SageMaker Python SDK, doc/api/training/smd_model_parallel_general.rst, "Placement Strategy".
"""

from collections.abc import Callable
from dataclasses import dataclass

ORDERS = {"cluster": "DPT", "spread": "TPD"}
"""Named placement → order of letters."""


@dataclass(frozen=True, slots=True)
class Topology:
    """`pp` partitions times `tp` tensor ranks, and world_size / (pp · tp) replicas.

    placement: cluster, spread or a permutation of DPT. A group is a tuple of ranks in ascending order; a rank's place
    in it is its rank of that kind.
    """

    world_size: int
    pp: int = 1
    tp: int = 1
    placement: str = "cluster"

    def __post_init__(self) -> None:
        if self.world_size % (self.pp * self.tp):
            raise ValueError(f"{self.pp} × {self.tp} does not divide {self.world_size} ranks.")

    @property
    def rdp(self) -> int:
        """The number of replicas."""
        return self.world_size // (self.pp * self.tp)

    def coordinate(self, letter: str, rank: int) -> int:
        """A rank's coordinate in one kind of parallelism: letter D, P or T."""
        sizes = {"D": self.rdp, "P": self.pp, "T": self.tp}
        order = ORDERS.get(self.placement, self.placement)
        for faster in reversed(order[order.index(letter) + 1 :]):
            rank //= sizes[faster]
        return rank % sizes[letter]

    def _alike(self, rank: int, letters: str) -> tuple[int, ...]:
        """The ranks with the same coordinates for these letters."""
        key = [self.coordinate(letter, rank) for letter in letters]
        every = range(self.world_size)
        return tuple(each for each in every if [self.coordinate(letter, each) for letter in letters] == key)

    def world_group(self, rank: int) -> tuple[int, ...]:
        """All ranks."""
        return self._alike(rank, "")

    def mp_group(self, rank: int) -> tuple[int, ...]:
        """The ranks that hold one replica of the model together."""
        return self._alike(rank, "D")

    def dp_group(self, rank: int) -> tuple[int, ...]:
        """The ranks that hold the same partition."""
        return self._alike(rank, "P")

    def pp_group(self, rank: int) -> tuple[int, ...]:
        """The ranks that hold the partitions of a replica."""
        return self._alike(rank, "DT")

    def tp_group(self, rank: int) -> tuple[int, ...]:
        """The ranks that share the tensors of one partition of one replica."""
        return self._alike(rank, "DP")

    def rdp_group(self, rank: int) -> tuple[int, ...]:
        """The ranks that hold the same parameters."""
        return self._alike(rank, "PT")

    def groups(self, group_of: Callable[[int], tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
        """All groups of one kind, in the same order on every rank: `topology.groups(topology.pp_group)`."""
        return tuple(dict.fromkeys(group_of(rank) for rank in range(self.world_size)))
