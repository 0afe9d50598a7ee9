"""How long it takes to post control messages that the other rank does not read yet.

It is imported in processes in which `smdistributed` is a top-level package.
"""

import statistics
import time
from collections.abc import Sequence

import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from smdistributed.modelparallel.torch.messages import ServerStatus
from smdistributed.modelparallel.torch.wire import Wire


def posting(counts: Sequence[int], rounds: int) -> list[float]:
    """The median seconds of posting so many messages to the other of two ranks, for each count."""
    smp.init({"partitions": 2, "microbatches": 1})
    wire = Wire(dist.group.WORLD, None, torch.device("cpu"))
    times: dict[int, list[float]] = {count: [] for count in counts}
    for count in [counts[0], *counts * rounds]:  # the first one is warm-up
        smp.barrier()
        began = time.perf_counter()
        if smp.rank() == 0:
            for _ in range(count):
                wire.send(1, ServerStatus())
        times[count].append(time.perf_counter() - began)
        smp.barrier()
        if smp.rank():
            for _ in range(count):
                wire.receive(0)
        wire.drain()
    times[counts[0]].pop(0)
    return [statistics.median(times[count]) for count in counts]
