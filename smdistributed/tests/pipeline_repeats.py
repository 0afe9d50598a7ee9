"""Runs in each rank of a launch: trainings whose results must not depend on the number of partitions."""

import pipeline_cases
import pipeline_models
import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from torch import nn

STEPS = 3


class Reused(nn.Module):
    """A block that is called twice, with dropout as a module and as a function."""

    def __init__(self):
        super().__init__()
        self.linear, self.dropout = nn.Linear(20, 20), nn.Dropout(0.3)

    def forward(self, x):
        x = x + self.dropout(torch.tanh(self.linear(x)))
        return x + F.dropout(torch.tanh(self.linear(x)), 0.2, self.training)


class Noisy(nn.Module):
    """Dropout in modules, in functions, in a Sequential, in a block that is called twice, and in the model itself."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Reused() for _ in range(4))
        layers = [nn.Sequential(nn.Linear(20, 20), nn.Dropout(0.1)) for _ in range(4)]
        self.rest = nn.Sequential(*layers, nn.Linear(20, 5))

    def forward(self, x):
        for block in self.blocks:
            x = block(block(F.dropout(x, 0.1, self.training)))
        return self.rest(x)


def with_dropout(kind):
    """A model that draws random numbers, and its batches' kind."""
    torch.manual_seed(0)
    if kind == "noisy":
        return Noisy().train(), "mlp"
    plain = pipeline_models.build(kind)
    for module in plain.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.1
        if isinstance(getattr(module, "dropout_prob", None), float):
            module.dropout_prob = 0.1
    return plain, kind


def enable_checkpoints(checkpoints, plain):
    """Enable activation checkpoints: none, those of transformers, or the library's."""
    if checkpoints == "transformers":
        plain.gradient_checkpointing_enable()
    if checkpoints == "library":
        smp.set_activation_checkpointing(plain.blocks)
        smp.set_activation_checkpointing(plain.rest)


def trained(kind, config, checkpoints=None, *, dropout=None):
    """Train a few steps; parameters and losses. dropout: its seed, None without dropout."""
    pipeline_cases.start(config)
    plain, batch_kind = with_dropout(kind) if dropout is not None else (pipeline_models.build(kind), kind)
    enable_checkpoints(checkpoints, plain)
    optimizer = smp.DistributedOptimizer(pipeline_cases.optimizer_of(plain))
    model = smp.DistributedModel(plain)

    @smp.step
    def train_step(model, *tensors):
        loss = (
            pipeline_models.call(batch_kind, model, tensors)[1]
            if kind != "noisy"
            else model(tensors[0]).square().mean()
        )
        model.backward(loss)
        return loss

    losses = []
    torch.manual_seed(dropout or 0)
    for seed in range(STEPS):
        optimizer.zero_grad()
        outputs = train_step(model, *pipeline_models.batch(batch_kind, seed, 2 * config["microbatches"]))
        losses.append(outputs.stack())
        optimizer.step()
    return {**model.state_dict(), "losses": torch.stack(losses)}


def alike(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def independent(kind, counts, checkpoints=None):
    """The largest difference of trainings with dropout on several numbers of partitions, also with checkpoints."""
    configs = [{"partitions": count, "microbatches": 4} for count in counts]
    expected, *others = [trained(kind, config, dropout=7) for config in configs]
    if checkpoints:
        others.append(trained(kind, configs[-1], checkpoints, dropout=7))
    assert pipeline_cases.worst(expected, trained(kind, configs[0], dropout=8)) > 1e-3, (
        "another seed must change the result"
    )
    return max(pipeline_cases.worst(expected, each) for each in others)
