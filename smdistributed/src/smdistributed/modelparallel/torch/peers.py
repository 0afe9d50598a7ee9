"""What a rank knows of the others, and whether it waits in vain; pure.

A rank tells the others that it ended, that a step failed there, and, once it has waited for a while, what it waits for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STEP = "a step function"
"""What is waited for in a step, under whatever name: a step of another name is an error of its own."""


@dataclass(frozen=True)
class Waiting:
    """What a rank waits for: a call that each of `ranks` must make, too."""

    what: str
    ranks: tuple[int, ...]


def at_odds(me: int, mine: str, other: int, others: str) -> str:
    """Two ranks wait for each other in two calls."""
    return (
        f"Rank {me} waits for rank {other} in {mine}, and rank {other} for rank {me} in {others}; every rank must call "
        "the library's functions equally often and in the same order."
    )


@dataclass
class Peers:
    """Of each other rank: how it ended ("" is as it should, None without a word), what it waits for, failed steps."""

    ended: dict[int, str | None] = field(default_factory=dict)
    waiting: dict[int, Waiting] = field(default_factory=dict)
    failed: dict[int, tuple[int, str]] = field(default_factory=dict)

    def hear(self, event: Mapping[str, Any]) -> None:
        """Take note of what a rank told, or what was seen of it."""
        rank = int(event["rank"])
        if "ended" in event:
            self.ended.setdefault(rank, event["ended"])
        if "failed" in event:
            self.failed[rank] = (int(event["failed"]), event["text"])
        if "what" in event:
            self.waiting[rank] = Waiting(event["what"], tuple(event["ranks"]))
        elif "goes on" in event or "ended" in event:
            self.waiting.pop(rank, None)

    def broken(self) -> str | None:
        """Why the job can't go on, whatever this rank does: the first rank that did not end as it should."""
        for rank, how in self.ended.items():
            if how is None:
                return (
                    f"Rank {rank} ended without a word: it was killed, for want of memory perhaps, or its host is gone."
                )
            if how:
                return f"Rank {rank} ended: {how}"
        return None

    def in_vain(self, me: int, mine: Waiting | None) -> str | None:
        """Why what this rank waits for will not come."""
        if mine is None:
            return None
        for rank in mine.ranks:
            if rank in self.ended and rank != me:
                return (
                    f"Rank {rank} has come to its script's end, and rank {me} waits for it in {mine.what}; every rank "
                    "must call the library's functions equally often and in the same order."
                )
            other = self.waiting.get(rank)
            if other is not None and me in other.ranks and other.what != mine.what:
                return at_odds(me, mine.what, rank, other.what)
        return None

    def missing(self, me: int, mine: Waiting) -> str | None:
        """Who does not come to a call that all make together; said by the first of those that wait there."""
        here = [rank for rank in mine.ranks if rank == me or self.waiting.get(rank) == mine]
        away = [str(rank) for rank in mine.ranks if rank not in here]
        if not away or here[0] != me:
            return None
        return f"rank {me} waits for rank {' and '.join(away)} in {mine.what}, which every rank of the group must call."

    def failed_more_often(self, than: int, ranks: Sequence[int]) -> str | None:
        """What failed at a replica, if a step failed at one of these ranks and not here, where `than` steps did."""
        for rank in ranks:
            count, text = self.failed.get(rank, (0, ""))
            if count > than:
                return f"A step failed on rank {rank}, which is another replica's:\n{text}"
        return None
