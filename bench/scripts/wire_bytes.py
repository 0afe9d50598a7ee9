"""The least that partitions must exchange; pure."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Taken:
    """A tensor that a module takes or gives: which, its bytes, whether it takes a gradient."""

    key: int
    size: int
    wants_gradient: bool

    @property
    def both_ways(self) -> int:
        """Its bytes there, and those of its gradient back."""
        return self.size * (2 if self.wants_gradient else 1)


@dataclass(frozen=True)
class Called:
    """A module of a partition ran."""

    partition: int
    takes: tuple[Taken, ...]
    gives: tuple[Taken, ...]


def least_bytes(calls: Sequence[Called]) -> int:
    """What must go between partitions: each tensor once to each that takes it, and its gradient back; pure.

    What no module takes goes to partition 0, where the step function runs.
    """
    home: dict[int, int] = {}
    taken = {each.key for call in calls for each in call.takes}
    there: set[tuple[int, int]] = set()
    total = 0
    for call in calls:
        for each in call.takes:
            place = each.key, call.partition
            if home.get(each.key, 0) != call.partition and place not in there:
                there.add(place)
                total += each.both_ways
        for each in call.gives:
            home.setdefault(each.key, call.partition)
            total += each.both_ways if call.partition and each.key not in taken else 0
    return total
