"""The least number of bytes that partitions must exchange."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TensorUse:
    """A tensor that a module takes or returns. key: its identity; size: bytes."""

    key: int
    size: int
    wants_gradient: bool

    @property
    def both_ways(self) -> int:
        """Its bytes, plus those of the gradient sent back."""
        return self.size * (2 if self.wants_gradient else 1)


@dataclass(frozen=True)
class ModuleCall:
    """A call of a module on a partition."""

    partition: int
    takes: tuple[TensorUse, ...]
    returns: tuple[TensorUse, ...]


def least_bytes(calls: Sequence[ModuleCall]) -> int:
    """Send each tensor once to every partition that takes it, and its gradient back.

    A tensor that no module takes goes to partition 0, where the step function runs.
    """
    home: dict[int, int] = {}
    taken = {each.key for call in calls for each in call.takes}
    sent: set[tuple[int, int]] = set()
    total = 0
    for call in calls:
        for each in call.takes:
            place = each.key, call.partition
            if home.get(each.key, 0) != call.partition and place not in sent:
                sent.add(place)
                total += each.both_ways
        for each in call.returns:
            home.setdefault(each.key, call.partition)
            total += each.both_ways if call.partition and each.key not in taken else 0
    return total
