"""Lets all ranks save, stop or break off a step at the same place: each sends its requests, and all read the union.

All ranks must save and stop together, but a signal reaches them at different moments, and only rank 0's clock decides
when to save. So after every micro-batch (in an evaluation, after every batch) each rank sends its requests and reads
the union of the previous round. No rank has to wait for a message that was only just sent, and all ranks read the same
requests at the same place.
"""

from enum import Flag, auto

import torch
import torch.distributed as dist

from berth.runtime.rank import Rank
from berth.train.run_qa.ranks import group_device


class AgreedStop(Exception):
    """All ranks have agreed to stop; raised on all of them at the same place."""


class RankRequest(Flag):
    """What a rank may ask all ranks to do."""

    SAVE = auto()
    STOP = auto()  # after the current step
    BREAK_OFF = auto()  # in the middle of the current step
    ANSWER_AT_ONCE = auto()  # use `settle` at the end of each step, because this rank's steps are slow


class Agreement:
    """The agreement on one rank. All ranks must call the methods in the same order."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._round: _Round | None = None
        self._stream: torch.cuda.Stream | None = None

    def exchange(self, mine: RankRequest) -> RankRequest:
        """Send this rank's requests; return those of all ranks in the previous call. With one rank, return `mine`."""
        if self._rank.world_size == 1:
            return mine
        agreed = self._last_round()
        device = group_device()
        if device.type == "cuda" and self._stream is None:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._round = _Round(mine, self._stream)
        return agreed

    def settle(self, mine: RankRequest) -> RankRequest:
        """Send this rank's requests; return those of all ranks, including this call's. Waits for all ranks."""
        return self.exchange(mine) | self._last_round()

    def _last_round(self) -> RankRequest:
        last, self._round = self._round, None
        return RankRequest(0) if last is None else last.result()


class _Round:
    """One exchange between all ranks, as an all_reduce sum, which every backend supports.

    On a GPU it uses a separate stream and event, so it does not wait for the GPU's other work.
    """

    def __init__(self, mine: RankRequest, stream: torch.cuda.Stream | None) -> None:
        requests = torch.tensor([float(request in mine) for request in RankRequest])
        self._copied: torch.cuda.Event | None = None
        if stream is None:
            self._sum = requests
            self._work = dist.all_reduce(self._sum, async_op=True)
            return
        with torch.cuda.stream(stream):
            on_gpu = requests.to(stream.device)
            self._work = dist.all_reduce(on_gpu, async_op=True)
            self._work.wait()  # makes the stream wait, not this thread
            self._sum = torch.empty(requests.shape, pin_memory=True).copy_(on_gpu, non_blocking=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()

    def result(self) -> RankRequest:
        """The requests of all ranks."""
        if self._copied is None:
            self._work.wait()
        else:
            self._copied.synchronize()
        agreed = RankRequest(0)
        for request, count in zip(RankRequest, self._sum.tolist(), strict=True):
            agreed |= request if count else RankRequest(0)
        return agreed
