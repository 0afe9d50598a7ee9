"""Runs in each rank of a launch: steps in half precision, compared with one process."""

import math

import pipeline_cases
import pipeline_models
import smdistributed.modelparallel.torch as smp
import torch

KIND, SIZE, RATE, STEPS, SCALE = "bert", 8, 0.01, 4, 1024.0
BAD = 1
"""The step in which one rank has an infinite gradient."""


def wrapped(**options):
    pipeline_cases.start({"partitions": 2, "microbatches": 2, "ddp": True, "deterministic_server": True, **options})
    model = smp.DistributedModel(pipeline_models.build(KIND))
    return model, torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)


def spoil(named):
    """Make a gradient of the last module infinite, on the rank of the last partition only."""
    gradient = dict(named).get("qa_outputs.weight")
    if gradient is not None and gradient.grad is not None:
        gradient.grad[0, 0] = math.inf


class OneProcess:
    """The same steps without the library. scaler: torch's GradScaler."""

    def __init__(self, dtype, scaler):
        alone = pipeline_models.build(KIND)
        optimizer = torch.optim.SGD(alone.parameters(), lr=RATE, momentum=0.9)
        self.losses, self.scales, count = [], [], 2 * smp.dp_size()
        for seed in range(STEPS):
            optimizer.zero_grad()
            parts = list(zip(*(each.chunk(count) for each in pipeline_models.batch(KIND, seed, SIZE)), strict=True))
            for place, part in enumerate(parts):
                with torch.autocast("cpu", dtype):
                    loss = pipeline_models.call(KIND, alone, part)[1]
                scaler.scale(loss / count).backward()
                if place // 2 == smp.dp_rank():
                    self.losses.append(float(loss.detach()))
            if seed == BAD and scaler.is_enabled():
                spoil(alone.named_parameters())
            scaler.step(optimizer)
            scaler.update()
            self.scales.append(scaler.get_scale())
        self.parameters = alone.state_dict()


def trained(model, optimizer, function, update, expected):
    """Train STEPS steps. update: performs the optimizer's step and returns the loss scale."""
    step = smp.step(function)
    losses, scales, skipped = [], [], []
    for seed in range(STEPS):
        optimizer.zero_grad()
        tensors = [each.chunk(smp.dp_size())[smp.dp_rank()] for each in pipeline_models.batch(KIND, seed, SIZE)]
        losses += [float(each) for each in step(model, *tensors)]
        if seed == BAD and len(set(expected.scales)) > 1:
            spoil(model.local_named_parameters())
        before = [each.clone() for each in model.local_parameters()]
        scales.append(update())
        if all(map(torch.equal, before, model.local_parameters())):
            skipped.append(seed)
    return {
        "losses": max(abs(one - other) for one, other in zip(losses, expected.losses, strict=True)),
        "scales": scales,
        "expected scales": expected.scales,
        "skipped": skipped,
        "parameters": pipeline_cases.worst(model.state_dict(), expected.parameters),
    }


def scaled(expected):
    """Train with smp.amp.GradScaler and the script's own autocast."""
    model, optimizer = wrapped()
    optimizer = smp.DistributedOptimizer(optimizer)
    scaler = smp.amp.GradScaler(init_scale=SCALE)

    def train_step(model, *tensors):
        with torch.autocast("cpu", torch.float16):
            loss = pipeline_models.call(KIND, model, tensors)[1]
        model.backward(scaler.scale(loss))
        return loss

    def update():
        scaler.step(optimizer)
        scaler.update()
        return scaler.get_scale()

    return trained(model, optimizer, train_step, update, expected)


def option(name, expected, **arguments):
    """Train with the library's option fp16 or bf16; the script itself sets no precision."""
    model, optimizer = wrapped(**{name: True})
    optimizer = smp.DistributedOptimizer(optimizer, **arguments)

    def train_step(model, *tensors):
        output, loss = pipeline_models.call(KIND, model, tensors)
        assert output.dtype in (torch.float16, torch.bfloat16)
        model.backward(loss)
        return loss

    def update():
        optimizer.step()
        return optimizer.loss_scale

    results = trained(model, optimizer, train_step, update, expected)
    saved = optimizer.state_dict()
    _, fresh = wrapped(**{name: True})
    fresh = smp.DistributedOptimizer(fresh, **arguments)
    fresh.load_state_dict(saved)
    return results | {"resumed": fresh.loss_scale}


def all_of():
    half = OneProcess(torch.float16, torch.amp.GradScaler("cpu", init_scale=SCALE))
    brain = OneProcess(torch.bfloat16, torch.amp.GradScaler("cpu", enabled=False))
    return {
        "GradScaler": scaled(half),
        "fp16": option("fp16", half, dynamic_loss_scale=True, dynamic_loss_args={"init_scale": SCALE}),
        "bf16": option("bf16", brain),
    }
