"""Runs jobs of four ranks that train with the open smdistributed and end at once; prints how they ended, as JSON.

Usage: python exits.py JOBS LOAD [--without-wait]

LOAD processes compute meanwhile. The ranks are forked from this process, which has the slow imports; each ends like any
Python. --without-wait: they do not wait for gloo's threads. It runs in the training image as well.
"""

import collections
import json
import os
import signal
import socket
import sys

import smdistributed.modelparallel.torch as smp
import torch
import torch.fx.experimental.symbolic_shapes  # imported by the first backward pass of a process

from smdistributed import gloo_threads

RANKS, STEPS = 4, 3


def train() -> None:
    torch.set_num_threads(1)
    smp.init({"ddp": True, "microbatches": 2})
    torch.manual_seed(0)
    model = smp.DistributedModel(torch.nn.Sequential(*[torch.nn.Linear(20, 20) for _ in range(8)]))
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))

    @smp.step
    def train_step(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        loss = model(x).square().mean()
        model.backward(loss)
        return loss

    for _ in range(STEPS):
        train_step(model, torch.randn(8, 20))
        optimizer.step()
        optimizer.zero_grad()
    smp.barrier()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def job() -> int:
    """How a job ended: 0 if well, else a rank's exit code, or the negative number of the signal that killed a rank."""
    os.environ.update(WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    for rank in range(RANKS):
        if os.fork() == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(RANKS))
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            train()
            sys.exit()
    codes = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(RANKS)]
    return min(codes) or max(codes)


def main(jobs: str, load: str, *words: str) -> None:
    if words:
        gloo_threads.wait = lambda: None
    this, busy = os.getpid(), []
    for _ in range(int(load)):
        busy.append(os.fork())
        if not busy[-1]:
            while True:
                pass
    try:
        endings = collections.Counter(job() for _ in range(int(jobs)))
    finally:
        for process in busy if os.getpid() == this else ():  # a rank ends through here as well
            os.kill(process, signal.SIGKILL)
    print(json.dumps(endings))


if __name__ == "__main__":
    main(*sys.argv[1:])
