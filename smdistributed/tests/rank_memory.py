"""Runs in each rank of a launch: how much memory a rank needs. Also used by bench.model_parallel_memory."""

import pathlib
import resource
import threading

import smdistributed.modelparallel.torch as smp
import torch
from torch import nn


def rss():
    """The resident memory of this process in bytes."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def growth(work):
    """The bytes by which this process' resident memory exceeds its present one while `work` runs."""
    before, over = rss(), threading.Event()
    peak = [before]

    def look():
        while not over.wait(0.001):
            peak[0] = max(peak[0], rss())

    thread = threading.Thread(target=look)
    thread.start()
    kept = work()
    over.set()
    thread.join()
    del kept
    return peak[0] - before


def peak_of_sends(microbatches):
    """This rank's peak memory in bytes, without the batch, after a step that sends 1 MiB a microbatch each way."""
    smp.init({"partitions": 2, "microbatches": microbatches, "active_microbatches": 1})
    torch.manual_seed(0)
    model = smp.DistributedModel(nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256)))

    @smp.step
    def train_step(model, x):
        model.backward(model(x).square().mean())

    batch = torch.ones(microbatches * 1024, 256)
    train_step(model, batch)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - batch.nbytes
