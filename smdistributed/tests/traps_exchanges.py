"""Runs in each rank of a launch: traps of exchanges, each with a context without its cure; see tensor_traps.py."""

import contextlib
import functools
import os
import pathlib
import sys

import pipeline_cases
import pipeline_models
import safetensors.torch
import smdistributed.modelparallel.torch as smp
import tensor_features
import torch
from smdistributed.modelparallel.torch import model, pipeline
from smdistributed.modelparallel.torch.gradients import GradientExchange
from smdistributed.modelparallel.torch.groups import TP_GROUP, members
from smdistributed.modelparallel.torch.tensor import exchange, functions
from smdistributed.modelparallel.torch.watch import Watch
from torch import nn
from traps_layers import MANUAL, ROUNDING, SPLIT, STEPS, patched, raised, wrong

# 6. The ranks of a group run their microbatches in different orders, and all their tensors have one shape.


def updates_with_crossed_microbatches():
    wrapped, optimizer = tensor_features.fresh()
    before = [each.detach().clone() for each in wrapped.parameters()]

    def train():
        tensor_features.train_step(wrapped, *tensor_features.own_rows(0))
        optimizer.step()
        exchange.compare_exchanges()

    backwards = reversed if smp.rank() else iter
    with patched(pipeline, "enumerate", lambda each: backwards(list(enumerate(each))), create=True):
        error = raised(train)
    assert "in different orders" in error, error
    same = all(torch.equal(one, other) for one, other in zip(before, wrapped.parameters(), strict=True))
    return "" if same else "the optimizer used gradients of crossed microbatches"


@contextlib.contextmanager
def compares_after_the_update():
    with patched(pipeline, "compare_exchanges", lambda: None), patched(model, "compare_exchanges", lambda: None):
        yield


# 7. A broadcast over the data parallel group after the split.


def even_heads():
    return wrong("bert", SPLIT)


@contextlib.contextmanager
def broadcast_after_the_split():
    plain = model.DistributedModel.partition

    def partition(self):
        with patched(model, "tp_size", lambda: 1):
            plain(self)

    with patched(model.DistributedModel, "partition", partition):
        yield


# 8. Gradients of earlier steps are averaged again.


def gradients_after(steps):
    """The largest relative difference of the gradients of some steps to those of one process."""
    pipeline_cases.start(SPLIT)
    plain = pipeline_models.build("bert-3")
    smp.set_tensor_parallelism(plain)
    wrapped, alone = smp.DistributedModel(plain, backward_passes_per_step=2), pipeline_models.build("bert-3")
    for seed in range(steps):
        tensor_features.train_step(wrapped, *tensor_features.own_rows(seed))
        for part in zip(*(each.chunk(4) for each in pipeline_models.batch("bert-3", seed, 8)), strict=True):
            (pipeline_models.call("bert-3", alone, part)[1] / 4).backward()
    expected = {name: each.grad for name, each in alone.named_parameters()}
    return pipeline_cases.relative(pipeline_cases.gradients_of(wrapped), expected)


def averages_twice():
    once, twice = gradients_after(2), gradients_after(4)
    assert once < ROUNDING, once
    return f"gradients by {twice:.1e}" if twice > ROUNDING else ""


@contextlib.contextmanager
def scales_in_the_exchange():
    """Gradients in regions, which are all here, are the sum over the ranks, and are divided after the average."""
    plain = GradientExchange._reduce

    def reduce(self, parameters, *args):
        maxima = plain(self, parameters, *args)
        for each in parameters:
            each.grad.div_(2)
        return maxima

    def together(ctx, gradient):
        return torch.cat(exchange.exchanges().gather(gradient)), None

    with patched(GradientExchange, "_reduce", reduce), patched(functions.OwnPart, "backward", staticmethod(together)):
        yield


# 9. Ranks with one batch call the model a different number of times: one compares while the other sums.


def branches():
    pipeline_cases.start({**SPLIT, "prescaled_batch": True})
    plain = nn.Linear(64, 64)
    smp.set_tensor_parallelism(plain)
    wrapped = smp.DistributedModel(plain)

    @smp.step
    def train_step(wrapped, batch):
        loss = wrapped(batch).mean()
        if smp.tp_rank():
            loss = loss + wrapped(batch).mean()
        wrapped.backward(loss)

    return raised(train_step, wrapped, torch.ones(4, 64))


def compares_in_the_layers_group():
    plain = exchange.Exchanges
    return patched(exchange, "Exchanges", lambda group: plain(members(TP_GROUP).tensors))


# 11. A step fails on the first rank of one pipeline and on the second rank of the other.


class Fragile(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.fails = nn.Parameter(torch.ones(8)), False

    def forward(self, value):
        if self.fails:
            raise KeyError("this module is broken")
        return value * self.scale


def ranks_count_differently():
    """The ranks' numbers of failed steps."""
    pipeline_cases.start({**MANUAL, "microbatches": 1})
    plain = nn.Sequential(nn.Linear(8, 8), Fragile(), Fragile(), nn.Linear(8, 8))
    smp.set_tensor_parallelism(plain)
    smp.set_partition(plain[2], 1)
    smp.set_partition(plain[3], 1)
    wrapped = smp.DistributedModel(plain)

    @smp.step
    def train_step(wrapped, batch):
        wrapped.backward(wrapped(batch).square().mean())

    train_step(wrapped, torch.ones(4, 8))
    broken = plain[1 + smp.pp_rank()]
    broken.fails = smp.pp_rank() == smp.tp_rank()
    assert raised(train_step, wrapped, torch.ones(4, 8))
    counts = smp.allgather(smp.state.watch.failures, smp.WORLD)
    return "" if len(set(counts)) == 1 else f"failed steps: {counts}"


def counts_twice():
    plain = Watch.step_failed

    def step_failed(self, text, step):
        self._failed_step = None
        plain(self, text, step)

    return patched(Watch, "step_failed", step_failed)


# 13. transformers' save_pretrained empties the state dict that it is given.


def saves_less():
    """The tensors that the second of two saved models lacks."""
    wrapped, _ = tensor_features.fresh()
    folder = os.environ["RESULTS"]
    for number in range(2):
        states = wrapped.state_dict()
        if smp.rank() == 0:
            wrapped.module.save_pretrained(f"{folder}/{number}", state_dict=states)
    smp.barrier()
    expected = pipeline_models.build("bert-3").state_dict()
    file = pathlib.Path(folder, "1", "model.safetensors")
    saved = safetensors.torch.load_file(file) if file.exists() else {}
    smp.barrier()
    file.unlink(missing_ok=True)
    lost = [name for name, each in expected.items() if name not in saved or not torch.equal(saved[name], each)]
    return ", ".join(lost)


def same_dict_each_time():
    plain = functools.lru_cache(model.DistributedModel.state_dict)
    return patched(model.DistributedModel, "state_dict", lambda self: plain(self))


# 15. Some gradients are 0 but for rounding errors, and Adam normalises them.


NEARLY_ZERO = {"qa_outputs.bias", "bert.encoder.layer.5.output.LayerNorm.bias"}
"""Parameters whose gradients are 0 in exact arithmetic, because a softmax over positions follows."""


def adam_differs():
    """Parameters after some steps of AdamW that differ from those of one process."""
    wrapped, _ = tensor_features.fresh()
    alone = pipeline_models.build("bert-3")
    optimizers = [smp.DistributedOptimizer(adamw(wrapped)), adamw(alone)]
    for seed in range(STEPS):
        for each in optimizers:
            each.zero_grad()
        tensor_features.train_step(wrapped, *tensor_features.own_rows(seed))
        pipeline_models.call("bert-3", alone, pipeline_models.batch("bert-3", seed, 8))[1].backward()
        for each in optimizers:
            each.step()
    state = wrapped.state_dict()
    errors = {name: float((state[name] - each).abs().max()) for name, each in alone.state_dict().items()}
    return ", ".join(
        f"{name} by {error:.1e}" for name, error in errors.items() if error > ROUNDING and name not in NEARLY_ZERO
    )


def adamw(trained):
    return torch.optim.AdamW(trained.parameters(), lr=1e-3)


def compares_all():
    return patched(sys.modules[__name__], "NEARLY_ZERO", set())
