"""Random delays of servers, coordinators and exchanges, so that ranks and microbatches meet in unusual orders."""

import contextlib
import random
import time
from unittest import mock

import torch.distributed as dist
from smdistributed.modelparallel.torch import coordinator, model, server
from smdistributed.modelparallel.torch.tensor import exchange

LONGEST, PART = 0.01, 0.2
"""Seconds of the longest delay, and the part of the calls that are delayed."""
DELAYED = (
    (server.ModuleServer, "_call"),
    (server.ModuleServer, "_backward"),
    (coordinator.Coordinator, "_run_microbatch"),
    (exchange.Exchanges, "_run"),
    (model.DistributedModel, "run_step"),
)


@contextlib.contextmanager
def random_delays(seed):
    """Delay some calls in this context, different ones on each rank. None: no delays."""
    if seed is None:
        yield
        return
    randomness = random.Random(f"{seed} {dist.get_rank()}")

    def delay():
        if randomness.random() < PART:
            time.sleep(randomness.uniform(0.0, LONGEST))

    with contextlib.ExitStack() as patches:
        for owner, name in DELAYED:
            patches.enter_context(mock.patch.object(owner, name, delayed(getattr(owner, name), delay)))
        wait = slow_replies(coordinator.Coordinator._wait, delay)
        patches.enter_context(mock.patch.object(coordinator.Coordinator, "_wait", wait))
        yield


def delayed(function, delay):
    """The function with a delay before it."""

    def call(*args, **kwargs):
        delay()
        return function(*args, **kwargs)

    return call


def slow_replies(wait_for_reply, delay):
    """The method with which a microbatch waits for another rank, so that its replies come late.

    The delay is within the wait, so other microbatches run meanwhile and may overtake it.
    """

    def call(self, wait):
        return wait_for_reply(self, delayed(wait, delay))

    return call
