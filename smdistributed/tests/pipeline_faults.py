"""Runs in each rank of a launch: mistakes that must raise."""

import threading

import pipeline_cases
import pipeline_repeats
import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch import messages, wire
from torch import nn


class Odd(nn.Module):
    """A block that can fail, and whose result can get another form."""

    fails, grows, seen = False, False, 0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x, extra=None):
        self.seen += 1
        if self.fails:
            raise KeyError("the module is broken")
        x = torch.tanh(self.linear(x))
        return torch.cat([x, x]) if self.grows and self.seen > 6 else x


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Odd() for _ in range(4))

    def forward(self, x, extra=None):
        for block in self.blocks:
            x = block(x, extra)
        return x


def fresh(**options):
    pipeline_cases.start({"partitions": smp.size() if smp.is_initialized() else 2, "microbatches": 2, **options})
    torch.manual_seed(0)
    return smp.DistributedModel(Line())


@smp.step
def train_step(model, x, extra=None):
    loss = model(x, extra).square().mean()
    model.backward(loss)
    return loss


@smp.step
def test_step(model, x):
    return model(x).mean()


@smp.step
def local_backward(model, x):
    loss = model(x).square().mean()
    loss.backward()
    return loss


@smp.step
def twice_backward(model, x):
    loss = model(x).square().mean()
    model.backward(loss)
    model.backward(loss)
    return loss


@smp.step
def two_losses(model, x):
    """Two forward passes before the first backward pass."""
    one, other = model(x).square().mean(), model(2 * x).square().mean()
    model.backward(one)
    model.backward(other)
    return one + other


@smp.step
def step_in_step(model, x):
    return test_step(model, x)


def fault(name):
    """Make one mistake; returns what this rank raises."""
    model, x = fresh(), torch.randn(4, 8)
    train_step(model, x)
    if name == "remote":
        model.module.blocks[-1].fails = True
        first = pipeline_cases.raised(train_step, model, x)
        model.module.blocks[-1].fails = False
        assert pipeline_cases.raised(train_step, model, x) is None, "the next step works"
        return first
    if name == "form":
        model.module.blocks[-1].grows = True
        return [pipeline_cases.raised(train_step, model, x) for _ in range(4)][-1]
    if name == "mismatch":
        error = pipeline_cases.raised(test_step if smp.pp_rank() == 0 else train_step, model, x)
        assert pipeline_cases.raised(train_step, model, x) is None, "the next step works"
        return error
    calls = {
        "batch": lambda: train_step(model, torch.randn(3, 8)),
        "argument": lambda: train_step(model, x, threading.Lock()),
        "local backward": lambda: local_backward(model, x),
        "twice backward": lambda: twice_backward(model, x),
        "step in step": lambda: step_in_step(model, x),
        "outside": lambda: model(x),
        "module outside": lambda: model.module(x),
        "backward outside": lambda: model.backward(x.sum()),
        "module state": lambda: model.module.state_dict(),
        "second model": lambda: smp.DistributedModel(nn.Linear(2, 2)),
        "comm hook": lambda: model.register_comm_hook(None, None),
        "join": lambda: model.join(),
        "same model": lambda: _same(model),
    }
    return pipeline_cases.raised(calls[name])


def _same(model):
    assert smp.DistributedModel(model) is model
    assert smp.DistributedModel(model.module) is model


FAULTS = (
    "remote", "form", "mismatch", "batch", "argument", "local backward", "twice backward", "step in step", "outside",
    "module outside", "backward outside", "module state", "second model", "comm hook",
    "join", "same model",
)  # fmt: skip


def two_forwards():
    """Two forward passes before the first backward pass, compared with one process."""
    model, x = fresh(), torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    plain = Line()
    two_losses(model, x)
    for part in x.chunk(2):
        ((plain(part).square().mean() + plain(2 * part).square().mean()) / 2).backward()
    gradients = pipeline_cases.gradients_of(model)
    return pipeline_cases.worst(gradients, {name: each.grad for name, each in plain.named_parameters()})


def separated(kind, config):
    """Count the transfers between two owners, and list those whose two requests were not sent one after the other.

    Only rank 0 sends such requests. Another message between the two once corrupted gradients silently: one end of a
    transfer received the data of another transfer between the same ranks.
    """
    sent, plain = [], wire.Wire.send

    def record_and_send(self, destination, message):
        sent.append((destination, message))
        plain(self, destination, message)

    wire.Wire.send = record_and_send
    try:
        pipeline_repeats.trained(kind, config)
    finally:
        wire.Wire.send = plain
    senders = [
        place
        for place, (_, message) in enumerate(sent)
        if isinstance(message, messages.Push | messages.SendGradient) and message.destination != smp.rank()
    ]
    return len(senders), [sent[place : place + 2] for place in senders if not _together(sent[place:])]


def _together(sent):
    """Whether the sender's message is followed by the receiver's."""
    (_, message), (to, other) = sent[:2]
    return isinstance(other, messages.Expect) and (to, other.transfer) == (message.destination, message.transfer)
