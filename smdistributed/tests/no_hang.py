"""A script that runs jobs with one mistake each, several at a time, and writes how every rank ended to a file.

The ranks are forked from one process that has imported torch and the modules of the first backward pass, because
importing takes longer than most of these jobs. With the variable NAMES, a list in JSON, only these jobs run, each
REPEAT times, and ranks wait for a random time before each block.
"""

import contextlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import smdistributed.modelparallel.torch as smp
import torch
import torch.fx.experimental.symbolic_shapes
from forked_ranks import become
from smdistributed.modelparallel.torch import watch
from torch import nn

LIMIT, AT_A_TIME, LONGEST_DELAY = 40, 5, 0.05
RESULTS = Path(os.environ["RESULTS"])


class Block(nn.Module):
    """Calls `accident` in the third forward call of this process. delays: random numbers for waits before each call."""

    accident, delays = None, None
    seen = 0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        Block.seen += 1
        if Block.delays is not None:
            time.sleep(Block.delays.uniform(0, LONGEST_DELAY))
        if Block.seen == 3 and Block.accident is not None:
            Block.accident()
        return torch.tanh(self.linear(x))


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@smp.step
def train_step(model, x):
    loss = model(x).square().mean()
    model.backward(loss)
    return loss


@smp.step
def other_step(model, x):
    loss = model(x).square().mean()
    model.backward(loss)
    return loss


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def fail():
    raise KeyError("the module is broken")


def trains(accident=None, steps=4, **options):
    """Train for some steps, with `accident` in one of them."""
    Block.accident = accident
    smp.init({"microbatches": 2, **options})
    torch.manual_seed(0)
    with smp.tensor_parallelism():
        model = smp.DistributedModel(Line())
    for _ in range(steps):
        train_step(model, torch.randn(4, 8))
    return model


def one_dies(who, **options):
    return lambda rank: trains(kill if rank == who else None, **options)


def one_fails(who, **options):
    return lambda rank: trains(fail if rank in who else None, **options)


def goes_on(**options):
    """Rank 1 continues after a step that failed there."""

    def script(rank):
        model = trains(None, 1, ddp=True, **options)
        Block.seen, Block.accident = 0, fail if rank == 1 else None
        try:
            train_step(model, torch.randn(4, 8))
        except KeyError:
            train_step(model, torch.randn(4, 8))

    return script


def go_on(**options):
    """All ranks continue after a step that failed on rank 1."""

    def script(rank):
        model = trains(None, 1, **options)
        Block.seen, Block.accident = 0, fail if rank == 1 else None
        with contextlib.suppress(Exception):
            train_step(model, torch.randn(4, 8))
        train_step(model, torch.randn(4, 8))

    return script


def updates_alone(**options):
    """Rank 1 skips a step of its optimizer, of which parameters or states are sharded."""

    def script(rank):
        model = trains(None, 1, ddp=True, **options)
        optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1))
        if rank == 0:
            optimizer.step()
        train_step(model, torch.randn(4, 8))

    return script


def other_model(**options):
    """The last rank has another layer."""

    def script(rank):
        smp.init({"microbatches": 2, **options})
        model = Line()
        if rank == smp.size() - 1:
            model.blocks[3].linear = nn.Linear(8, 8, bias=False)
        smp.DistributedModel(model)

    return script


def reads_state_alone(rank):
    """Rank 0 asks for the whole model like a script for replicas that are not sharded."""
    model = trains(None, 1, **SHARDED)
    if rank == 0:
        model.state_dict()
    train_step(model, torch.randn(4, 8))


def calls_barrier(who, **options):
    def script(rank):
        model = trains(None, 1, **options)
        if rank == who:
            smp.barrier()
        else:
            train_step(model, torch.randn(4, 8))

    return script


def saves_alone(rank):
    """Rank 0 saves like a script for one process, while the other rank waits in torch's own barrier."""
    model = trains(None, 1, partitions=2)
    if rank == 0:
        smp.save_checkpoint(RESULTS / "alone", "first", model=model)
    torch.distributed.barrier()


def gathers_alone(rank):
    """The barrier uses the same process group, so it would receive the messages of the state dict."""
    model = trains(None, 1, partitions=2)
    if rank == 0:
        model.state_dict()
    smp.barrier()


def clips_alone(**options):
    def script(rank):
        model = trains(None, 1, **options)
        if rank == 0:
            model.clip_grad_norm_(1.0)
        train_step(model, torch.randn(4, 8))

    return script


def leaves(rank):
    model = trains(None, 1, partitions=2)
    if rank == 0:
        train_step(model, torch.randn(4, 8))


def exits(rank):
    """Rank 1 leaves without a word after its work, while rank 0 saves for a long time and waits for nobody."""
    trains(None, 1, partitions=1, ddp=True)
    if rank == 1:
        os._exit(0)
    time.sleep(watch.GRACE_ENDED + 3)
    print("saved")


SHARDED = {"sharded_data_parallel_degree": 2, "ddp": True}
SPLIT = {"tensor_parallel_degree": 2, "ddp": True}
IN_TWO = {**SPLIT, "partitions": 2}


def other_rows(rank):
    """The last batch of a tensor parallel rank is smaller."""
    model = trains(None, 1, **SPLIT)
    train_step(model, torch.randn(2 if rank else 4, 8))


@smp.step
def branching_step(model, x, more):
    loss = model(x).square().mean()
    if more.sum() > 0:
        loss = loss + model(x).mean()
    model.backward(loss)
    return loss


def branches(**options):
    """What one tensor parallel rank does depends on its data."""

    def script(rank):
        model = trains(None, 1, **options)
        branching_step(model, torch.randn(4, 8), torch.full((4,), float(smp.tp_rank())))

    return script


def other_batch(rank):
    """Tensor parallel ranks have different batches, although the option says that they have one."""
    model = trains(None, 0, prescaled_batch=True, **SPLIT)
    train_step(model, torch.full((4, 8), float(rank)))


def outside(*calls, **options):
    """Each rank makes its own call outside a step, then all train."""

    def script(rank):
        model = trains(None, 1, **options)
        calls[rank](model)
        train_step(model, torch.randn(4, 8))

    return script


def backward(*shape, value=1.0):
    """A forward and a backward pass on such a batch."""
    return lambda model: model(torch.full(shape, value)).square().mean().backward()


once, nothing = backward(4, 8), lambda model: None


def twice(model):
    """Two forward passes and a backward pass."""
    (model(torch.ones(4, 8)).mean() + model(torch.ones(4, 8)).square().mean()).backward()


@smp.step
def one_layer_more_step(model, x):
    loss = model(x).square().mean()
    if smp.rank():
        loss = loss + model.module.blocks[0](x).mean()
    model.backward(loss)
    return loss


def calls_one_layer_more(rank):
    """A sharded rank calls one layer more than the other."""
    one_layer_more_step(trains(None, 1, **SHARDED), torch.randn(4, 8))


@smp.step
def slow_step(model, x):
    loss = model(x).square().mean()
    if smp.rank() == 0:
        time.sleep(4)
    return loss


def is_slow(rank):
    """A sharded rank computes for longer than others wait, and all is well."""
    model = trains(None, 1, **SHARDED)
    slow_step(model, torch.randn(4, 8))
    smp.barrier()
    train_step(model, torch.randn(4, 8))


def other_function(rank):
    model = trains(None, 1, partitions=1, ddp=True)
    (train_step if rank == 0 else other_step)(model, torch.randn(4, 8))


def all_well(rank):
    """Long waits that succeed; rank 0 exits later than the other rank."""
    watch.PATIENCE = 3
    model = trains(None, 1, partitions=2)
    time.sleep(4 * rank)
    train_step(model, torch.randn(4, 8))
    time.sleep(4 * rank)
    torch.distributed.barrier()
    time.sleep(4 * rank)
    model.state_dict()
    smp.barrier()
    time.sleep(5 * (1 - rank))


JOBS = {
    "the server of two dies": (2, one_dies(1, partitions=2)),
    "the coordinator of two dies": (2, one_dies(0, partitions=2)),
    "a server of four dies": (4, one_dies(2, partitions=4)),
    "a server of another replica dies": (4, one_dies(3, partitions=2, ddp=True)),
    "a replica fails": (4, one_fails((3,), partitions=2, ddp=True)),
    "a replica goes on": (2, goes_on(partitions=1)),
    "a server calls a barrier": (2, calls_barrier(1, partitions=2)),
    "the coordinator calls a barrier": (2, calls_barrier(0, partitions=2)),
    "a replica calls a barrier": (2, calls_barrier(1, partitions=1, ddp=True)),
    "the coordinator saves alone": (2, saves_alone),
    "the coordinator gathers alone": (2, gathers_alone),
    "the coordinator clips alone": (2, clips_alone(partitions=2)),
    "a server leaves": (2, leaves),
    "a replica exits early": (2, exits),
    "replicas train by two functions": (2, other_function),
    "a tensor parallel rank dies": (2, one_dies(1, **SPLIT)),
    "a tensor parallel rank fails": (2, one_fails((1,), **SPLIT)),
    "a tensor parallel rank goes on": (2, goes_on(tensor_parallel_degree=2)),
    "all tensor parallel ranks go on": (2, go_on(**SPLIT)),
    "a tensor parallel server fails": (4, one_fails((3,), **IN_TWO)),
    "a tensor parallel rank leaves": (2, lambda rank: trains(None, 1 if rank else 2, **SPLIT)),
    "other rows": (2, other_rows),
    "another batch": (2, other_batch),
    "a tensor parallel rank branches": (2, branches(**SPLIT)),
    "a tensor parallel coordinator branches": (4, branches(**IN_TWO)),
    "a sharded rank dies": (2, one_dies(1, **SHARDED)),
    "a sharded rank fails": (2, one_fails((1,), **SHARDED)),
    "a sharded rank goes on": (2, goes_on(sharded_data_parallel_degree=2)),
    "a sharded rank leaves": (2, lambda rank: trains(None, 1 if rank else 2, **SHARDED)),
    "a sharded rank calls a barrier": (2, calls_barrier(1, **SHARDED)),
    "a rank updates alone": (2, updates_alone(shard_optimizer_state=True)),
    "a sharded rank updates alone": (2, updates_alone(sharded_data_parallel_degree=2)),
    "another model": (2, other_model(ddp=True)),
    "a sharded rank reads the state alone": (2, reads_state_alone),
    "a sharded rank calls one layer more": (2, calls_one_layer_more),
    "other rows outside a step": (2, outside(once, backward(2, 8), **SPLIT)),
    "all well": (2, all_well),
}
NIGHTLY = {
    "other lengths outside a step": (2, outside(backward(4, 3, 8), backward(4, 5, 8), **SPLIT)),
    "another batch outside a step": (2, outside(once, backward(4, 8, value=2.0), prescaled_batch=True, **SPLIT)),
    "a tensor parallel rank branches outside a step": (2, outside(once, twice, **SPLIT)),
    "a tensor parallel rank calls the model alone": (2, outside(once, nothing, **SPLIT)),
    "a sharded rank branches outside a step": (2, outside(once, twice, **SHARDED)),
    "a sharded rank calls the model alone": (2, outside(once, nothing, **SHARDED)),
    "a sharded rank clips alone": (2, clips_alone(**SHARDED)),
    "another model of the last partition": (2, other_model(partitions=2)),
    "a sharded rank is slow": (2, is_slow),
}
"""Jobs that run only if NAMES has them."""


def begin(name, size, script, port):
    """Start a job's ranks with a port for rank 0. Process id → job, rank."""
    shared = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1"}
    shared["MASTER_PORT"], jobs_of_children = port, {}
    for rank in range(size):
        child = os.fork()
        if child == 0:
            os.environ.update(shared)
            become(rank, RESULTS / f"{name} {rank}.txt")
            if "NAMES" in os.environ:
                Block.delays = random.Random(f"{name} {rank}")
            script(rank)
            sys.exit()
        jobs_of_children[child] = (name, rank)
    return jobs_of_children


def repeated(times):
    """The jobs in the variable NAMES, each under several names."""
    names = json.loads(os.environ["NAMES"])
    return {f"{name}, {number}": (JOBS | NIGHTLY)[name] for number in range(times) for name in names}


def main(ports):
    """Run AT_A_TIME jobs at a time, each with one of the ports."""
    torch.set_num_threads(1)
    jobs = repeated(int(os.environ.get("REPEAT", "20"))) if "NAMES" in os.environ else JOBS
    waiting, ranks, began = list(jobs), {}, {}
    endings = {name: {} for name in jobs}
    while waiting or ranks:
        while waiting and len(ranks) < AT_A_TIME:
            name = waiting.pop(0)
            began[name] = time.monotonic()
            ranks |= begin(name, *jobs[name], ports.pop())
        child, status = os.waitpid(-1, os.WNOHANG)
        if child in ranks:
            name, rank = ranks.pop(child)
            output = (RESULTS / f"{name} {rank}.txt").read_text()
            endings[name][rank] = (os.waitstatus_to_exitcode(status), time.monotonic() - began[name], output)
        for child, (name, _) in list(ranks.items()):
            if time.monotonic() - began[name] > LIMIT:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.02)
    (RESULTS / "endings.json").write_text(json.dumps(endings))


if __name__ == "__main__":
    main(sys.argv[1:])
