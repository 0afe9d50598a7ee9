"""What a rank knows of the others, and whether they can still do what it waits for; pure.

A rank tells the others when it ends, when a step fails there, and, after it has waited for a while, what it waits for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STEP = "a step function"
"""What a rank waits for in any step function. Step functions with different names are reported as another error."""


@dataclass(frozen=True)
class Waiting:
    """A call in which a rank waits until each of `ranks` makes it too.

    busy: the rank computes most of the time, so others may wait for it in a later call.
    """

    what: str
    ranks: tuple[int, ...]
    busy: bool = False


def mismatched_calls(me: int, mine: str, other: int, others: str) -> str:
    """The error of two ranks that wait for each other in different calls."""
    return (
        f"Rank {me} waits for rank {other} in {mine}, and rank {other} for rank {me} in {others}; every rank must call "
        "the library's functions, and the layers that ranks share, equally often and in the same order, whatever its "
        "data."
    )


def ending(rank: int, how: str | None) -> str:
    """How a rank ended that did not end normally; None: its connection closed."""
    if how is None:
        return (
            f"Rank {rank} ended without an error message: it was killed, perhaps because memory ran out, or its host "
            "is gone."
        )
    return f"Rank {rank} ended: {how}"


@dataclass
class Peers:
    """Per rank: how it ended ("": normally, None: its connection closed), what it waits for, its failed steps."""

    ended: dict[int, str | None] = field(default_factory=dict)
    waiting: dict[int, Waiting] = field(default_factory=dict)
    failed: dict[int, tuple[int, str]] = field(default_factory=dict)

    def hear(self, event: Mapping[str, Any]) -> None:
        """Record an event that a rank sent, or that was observed."""
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
        """Why a connection to a rank may be broken: the first rank that did not end normally."""
        return next((ending(rank, how) for rank, how in self.ended.items() if how != ""), None)

    def failed_rank(self) -> str | None:
        """The error if a rank failed, so that the job can't continue.

        One whose connection closed may have left by os._exit(0), when its work was done; see `cannot_succeed`.
        """
        return next((ending(rank, how) for rank, how in self.ended.items() if how), None)

    def cannot_succeed(self, me: int, mine: Waiting | None) -> str | None:
        """The error if what this rank waits for can't happen any more."""
        if mine is None:
            return None
        for rank in mine.ranks:
            if rank in self.ended and rank != me:
                if self.ended[rank] != "":
                    return ending(rank, self.ended[rank])
                return (
                    f"Rank {rank} has finished its script, and rank {me} waits for it in {mine.what}; every rank must "
                    "call the library's functions equally often and in the same order."
                )
            other = self.waiting.get(rank)
            if other is not None and me in other.ranks and other.what != mine.what and not mine.busy:
                return mismatched_calls(me, mine.what, rank, other.what)
        return None

    def missing(self, me: int, mine: Waiting) -> str | None:
        """A log line with the ranks that have not made a collective call; only for the lowest rank that waits."""
        joined = [rank for rank in mine.ranks if rank == me or self.waiting.get(rank) == mine]
        late = [str(rank) for rank in mine.ranks if rank not in joined]
        if not late or joined[0] != me:
            return None
        return f"rank {me} waits for rank {' and '.join(late)} in {mine.what}, which every rank of the group must call."

    def failed_more_often(self, than: int, ranks: Sequence[int]) -> str | None:
        """The error if more steps failed at one of these ranks than here, where `than` steps failed."""
        for rank in ranks:
            count, text = self.failed.get(rank, (0, ""))
            if count > than:
                return f"A step failed on rank {rank}:\n{text}"
        return None
