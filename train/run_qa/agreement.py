"""What all ranks do at the same place: save, stop, break off a step. Each asks, and all learn what any of them asked.

A signal reaches the ranks at different moments, and rank 0's clock is its own; but a checkpoint and the end of a
training are for all ranks together. So after every micro-batch, and in an evaluation after every batch, each rank sends
what it asks for, and reads what was asked for in the round before: nobody waits for a message that has only just been
sent, and every rank reads the same in the same place.
"""

from enum import Flag, auto

import torch
import torch.distributed as dist

from berth.runtime.rank import Rank
from berth.train.run_qa.ranks import group_device


class AgreedStop(Exception):
    """All ranks have agreed to stop, and leave what they are doing here."""


class RankRequest(Flag):
    """What a rank may ask all others for."""

    SAVE = auto()
    STOP = auto()  # after the step under way
    BREAK_OFF = auto()  # before its end
    ANSWER_AT_ONCE = auto()  # for this rank's steps are slow


class Agreement:
    """One rank's side. All ranks must call each method equally often."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._round: _Round | None = None
        self._stream: torch.cuda.Stream | None = None

    def exchange(self, mine: RankRequest) -> RankRequest:
        """Ask for `mine`; what any rank asked for in the call before. A rank alone has its answer at once."""
        if self._rank.world_size == 1:
            return mine
        agreed = self._last_round()
        device = group_device()
        if device.type == "cuda" and self._stream is None:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._round = _Round(mine, self._stream)
        return agreed

    def settle(self, mine: RankRequest) -> RankRequest:
        """Ask for `mine`; what any rank has asked for so far, this call included. Waits for all ranks."""
        return self.exchange(mine) | self._last_round()

    def _last_round(self) -> RankRequest:
        last, self._round = self._round, None
        return RankRequest(0) if last is None else last.result()


class _Round:
    """One message to all ranks and from all of them: a sum of numbers, the collective that every backend knows.

    On a GPU it has a stream and an event of its own, so that nobody waits for what else the GPU has to do.
    """

    def __init__(self, mine: RankRequest, stream: torch.cuda.Stream | None) -> None:
        asked = torch.tensor([float(each in mine) for each in RankRequest])
        self._copied: torch.cuda.Event | None = None
        if stream is None:
            self._sum = asked
            self._work = dist.all_reduce(self._sum, async_op=True)
            return
        with torch.cuda.stream(stream):
            on_gpu = asked.to(stream.device)
            self._work = dist.all_reduce(on_gpu, async_op=True)
            self._work.wait()  # makes the stream wait, not this thread
            self._sum = torch.empty(asked.shape, pin_memory=True).copy_(on_gpu, non_blocking=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()

    def result(self) -> RankRequest:
        """What any rank asked for."""
        if self._copied is None:
            self._work.wait()
        else:
            self._copied.synchronize()
        agreed = RankRequest(0)
        for each, count in zip(RankRequest, self._sum.tolist(), strict=True):
            agreed |= each if count else RankRequest(0)
        return agreed
