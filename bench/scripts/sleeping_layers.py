"""Layers that sleep instead of computing, which shows the order in which ranks work, on any number of cores.

It is imported in processes in which `smdistributed` is a top-level package.
"""

import statistics
import time
from typing import Any

import smdistributed.modelparallel.torch as smp
import torch
from new_start import start
from torch import nn

FORWARD, BACKWARD = 0.05, 0.1
"""Seconds of each layer; bench.model_parallel_overlap has the same."""


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        time.sleep(FORWARD)
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        time.sleep(BACKWARD)
        return gradients[0].clone()


class SleepingLayer(nn.Module):
    """A layer with one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sleep."""
        slept: torch.Tensor = _Sleep.apply(tensor * self.scale)  # type: ignore[no-untyped-call]
        return slept


def sleeping(partitions: int, microbatches: int, pipeline: str, rounds: int) -> float:
    """The median seconds of a step of a model with one sleeping layer per partition; the first rank has the loss."""
    start({
        "partitions": partitions, "microbatches": microbatches, "pipeline": pipeline,
        "auto_partition": False, "default_partition": 0,
    })  # fmt: skip
    plain = nn.Sequential(*(SleepingLayer() for _ in range(partitions)))
    for partition, layer in enumerate(plain):
        smp.set_partition(layer, partition)
    model = smp.DistributedModel(plain)

    @smp.step
    def train_step(model: Any, batch: torch.Tensor) -> None:
        model.backward(model(batch).sum())

    times = []
    for _ in range(2 + rounds):  # the first step records shapes and visits
        smp.barrier()
        began = time.perf_counter()
        train_step(model, torch.ones(microbatches, 8))
        times.append(time.perf_counter() - began)
    return statistics.median(times[2:])
