"""Runs in each rank of a launch: what sharding does besides computing the results of one process."""

import functools
import itertools
import pathlib

import pipeline_cases
import pipeline_models
import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from torch import nn

KIND, ROWS, RATE = "bert", 8, 0.001
OPTIONS = {
    "sdp": {"sharded_data_parallel_degree": 2, "sdp_gradient_clipping": 0},
    "states": {"shard_optimizer_state": True},
}


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=RATE)


def start(**options):
    pipeline_cases.start({"microbatches": 2, "ddp": True, **options})


def fresh(loss_scale=None, make=adamw, **options):
    """A new wrapped model and optimizer."""
    start(**options)
    model = smp.DistributedModel(pipeline_models.build(KIND))
    return model, smp.DistributedOptimizer(make(model.parameters()), static_loss_scale=loss_scale)


@smp.step
def train_step(model, *tensors):
    loss = pipeline_models.call(KIND, model, tensors)[1]
    model.backward(loss)
    return loss


def own_rows(seed):
    parts, part = pipeline_cases.batches()
    return [each.chunk(parts)[part] for each in pipeline_models.batch(KIND, seed, ROWS)]


def train(model, optimizer, seeds):
    """The losses of some steps."""
    losses = []
    for seed in seeds:
        optimizer.zero_grad()
        losses.append(float(train_step(model, *own_rows(seed)).reduce_mean()))
        optimizer.step()
    return losses


def results(model, optimizer):
    states = optimizer.state_dict()["state"]
    moments = {f"{place} {name}": each for place, values in states.items() for name, each in values.items()}
    return {**model.state_dict(), **moments}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def holds(options):
    """The parts of parameters and of the optimizer's moments that this rank has."""
    model, optimizer = fresh(**options)
    train(model, optimizer, range(1))
    whole = sum(each.numel() for each in pipeline_models.build(KIND).parameters())
    moments = sum(local(each).numel() for values in optimizer.state.values() for each in values.values() if each.dim())
    return sum(local(each).numel() for each in model.parameters()) / whole, moments / (2 * whole)


def one_process(folder, steps):
    """Continue from a full checkpoint with torch alone."""
    plain = pipeline_models.build(KIND)
    optimizer = adamw(plain.parameters())
    plain.load_state_dict(torch.load(f"{folder}/second", weights_only=True))
    states = torch.load(f"{folder}/optimizer_second", weights_only=False)
    optimizer.load_state_dict({name: states[name] for name in ("state", "param_groups")})
    losses = []
    for seed in steps:
        optimizer.zero_grad()
        loss = pipeline_models.call(KIND, plain, pipeline_models.batch(KIND, seed, ROWS))[1]
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def resumes(folder, options):
    """Whether 2 + 2 steps equal 4, by the kind of checkpoint."""
    model, optimizer = fresh(**options)
    train(model, optimizer, range(2))
    for partial in (True, False):
        smp.save_checkpoint(folder, "second", partial, model, optimizer, {"steps": 2})
    losses = train(model, optimizer, range(2, 4))
    expected, same = results(model, optimizer), {}
    for partial in (True, False):
        model, optimizer = fresh(**options)
        assert smp.resume_from_checkpoint(folder, "second", partial) == {"steps": 2}
        again = train(model, optimizer, range(2, 4))
        same["partial" if partial else "full"] = again == losses and equal(results(model, optimizer), expected)
    same["loaded before wrapping"] = equal(loaded_before_wrapping(folder, options), expected)
    names = sorted(each.name for each in pathlib.Path(folder, "second_partial").iterdir())
    means = [sum(each) / smp.size() for each in zip(*smp.allgather(losses, smp.WORLD), strict=True)]
    alone = max(abs(a - b) / b for a, b in zip(means, one_process(folder, range(2, 4)), strict=True))
    fresh()
    other = pipeline_cases.raised(smp.resume_from_checkpoint, folder, "second")
    return {"same": same, "files": names, "one process": alone, "other": other}


def loaded_before_wrapping(folder, options):
    """The results if the script loads its optimizer's state before it wraps the model."""
    start(**options)
    plain = pipeline_models.build(KIND)
    plain.load_state_dict(torch.load(f"{folder}/second", weights_only=True))
    optimizer = smp.DistributedOptimizer(adamw(plain.parameters()))
    optimizer.load_state_dict(torch.load(f"{folder}/optimizer_second", weights_only=False))
    model = smp.DistributedModel(plain)
    model.steps = 2
    train(model, optimizer, range(2, 4))
    return results(model, optimizer)


def saves_like_trainer(folder):
    """As transformers' Trainer saves and loads a sharded optimizer state."""
    model, optimizer = fresh(**OPTIONS["states"])
    train(model, optimizer, range(2))
    path = f"{folder}/optimizer.pt"
    smp.save(optimizer.local_state_dict(gather_if_shard=False), path, partial=True, v3=True)
    smp.barrier()
    expected = {name: each.clone() for name, each in results(model, optimizer).items()}
    states = smp.load(path, partial=True)
    for each in optimizer.state.values():
        each["exp_avg"].zero_()
    optimizer.load_state_dict(states)
    same = equal(results(model, optimizer), expected)
    return sorted(each.name for each in pathlib.Path(folder).glob("optimizer.pt*")), same


def clips():
    """Relative differences to one process that clips to a norm of 0.5."""
    sgd = functools.partial(torch.optim.SGD, lr=0.1)  # AdamW's first step is nearly the sign of a gradient
    model, optimizer = fresh(make=sgd, sharded_data_parallel_degree=2, sdp_gradient_clipping=0.5)
    train(model, optimizer, range(1))
    norm, state = optimizer._global_grad_norm, model.state_dict()
    plain = pipeline_models.build(KIND)
    alone = sgd(plain.parameters())
    pipeline_models.call(KIND, plain, pipeline_models.batch(KIND, 0, ROWS))[1].backward()
    expected = float(nn.utils.clip_grad_norm_(plain.parameters(), 0.5))
    assert expected > 0.5
    alone.step()
    return {"norm": abs(norm - expected) / expected, "parameters": pipeline_cases.relative(state, plain.state_dict())}


def half(precision):
    """The largest absolute difference of parameters to replicas that are not sharded."""
    states = []
    for options in (OPTIONS["sdp"], {}):
        model, optimizer = fresh(64.0, **options, **{precision: True})
        train(model, optimizer, range(3))
        states.append(model.state_dict())
    return pipeline_cases.worst(*states)


def overflows(options):
    """Whether an infinite gradient on the last rank skips the step everywhere."""
    model, optimizer = fresh(64.0, fp16=True, **options)
    train_step(model, *own_rows(0))
    before = [local(each.detach()).clone() for each in model.parameters()]
    if smp.rank() == smp.size() - 1:
        local(next(model.parameters()).grad)[0] = float("inf")
    if "shard_optimizer_state" in options:  # replicas have equal gradients, so all of them overflow
        next(model.parameters()).grad[0] = float("inf")
    optimizer.step()
    same = all(torch.equal(one, local(other)) for one, other in zip(before, model.parameters(), strict=True))
    return optimizer.overflow, same


def some_passes_per_exchange(passes, **options):
    """Relative differences to one process that adds up the gradients of as many steps before each update."""
    start(sharded_data_parallel_degree=2, sdp_gradient_clipping=0, **options)
    model = smp.DistributedModel(pipeline_models.build(KIND), backward_passes_per_step=passes)
    optimizer, plain = smp.DistributedOptimizer(pipeline_cases.optimizer_of(model)), pipeline_models.build(KIND)
    alone, gradients = pipeline_cases.optimizer_of(plain), []
    for update in range(3):
        for each in (optimizer, alone):
            each.zero_grad()
        for seed in range(update * passes, (update + 1) * passes):
            train_step(model, *own_rows(seed))
            pipeline_models.call(KIND, plain, pipeline_models.batch(KIND, seed, ROWS))[1].backward()
        expected = {name: each.grad for name, each in plain.named_parameters()}
        gradients.append(pipeline_cases.relative(pipeline_cases.gradients_of(model), expected))
        for each in (optimizer, alone):
            each.step()
    return max(gradients), pipeline_cases.relative(model.state_dict(), plain.state_dict())


def early():
    """The largest difference if the optimizer is created and wrapped before the model."""
    trained = []
    for first in (True, False):
        start(**OPTIONS["sdp"])
        plain = pipeline_models.build(KIND)
        made = smp.DistributedOptimizer(adamw(plain.parameters())) if first else None
        model = smp.DistributedModel(plain)
        optimizer = made or smp.DistributedOptimizer(adamw(model.parameters()))
        train(model, optimizer, range(2))
        trained.append(results(model, optimizer))
    return pipeline_cases.worst(*trained)


def added():
    """Parameters that the script gives to the optimizer after the first step."""
    start(**OPTIONS["states"])
    model = smp.DistributedModel(pipeline_models.build(KIND))
    (*first, last) = model.parameters()
    optimizer = smp.DistributedOptimizer(adamw(first))
    train(model, optimizer, range(1))
    optimizer.add_param_group({"params": [last]})
    before = last.detach().clone()
    train(model, optimizer, range(1, 3))
    everyone = smp.allgather(dict(model.module.named_parameters()), smp.WORLD)
    differs = max(pipeline_cases.worst(*pair) for pair in itertools.pairwise(everyone))
    return {"differs": differs, "changed": not torch.equal(before, last)}


def outside_a_step():
    """Gradients of loss.backward() without smp.step; relative difference to one process."""
    model, _ = fresh(**OPTIONS["sdp"])
    pipeline_models.call(KIND, model, own_rows(0))[1].backward()
    alone = pipeline_cases.OneProcess(KIND, smp.size(), ROWS, 1, 0.1).gradients[0]
    return pipeline_cases.relative(pipeline_cases.gradients_of(model), alone)


def checkpointed():
    """The largest difference of trainings with and without activation checkpoints."""
    trained = []
    for checkpoints in (True, False):
        model, optimizer = fresh(**OPTIONS["sdp"])
        if checkpoints:
            for layer in model.module.bert.encoder.layer:
                smp.set_activation_checkpointing(layer)
        train(model, optimizer, range(2))
        trained.append(results(model, optimizer))
    return pipeline_cases.worst(*trained)


class SparseWords(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.out = nn.Embedding(8, 4, sparse=True), nn.Linear(4, 2)

    def forward(self, x):
        return F.relu(self.out(self.words(x)))


def mistakes():
    """What is raised if a step fails on all ranks, and if the module itself is asked for its state."""
    model, _ = fresh(**OPTIONS["sdp"])
    state = pipeline_cases.raised(model.module.state_dict), pipeline_cases.raised(model.module.bert.state_dict)

    @smp.step
    def failing_step(model, *tensors):
        return model.module.qa_outputs(torch.ones(2, 3))

    return {"own error": pipeline_cases.raised(failing_step, model, *own_rows(0)), "module's state": state}


def sparse():
    start(**OPTIONS["sdp"])
    return pipeline_cases.raised(smp.DistributedModel, SparseWords())


def all_features(folder):
    saved, loaded = saves_like_trainer(folder)
    return {
        "saved": saved,
        "loaded": loaded,
        "holds": {kind: holds(options) for kind, options in OPTIONS.items()},
        "resumes": {kind: resumes(f"{folder}/{kind}", options) for kind, options in OPTIONS.items()},
        "clips": clips(),
        "half": {precision: half(precision) for precision in ("fp16", "bf16")},
        "overflows": {kind: overflows(options) for kind, options in OPTIONS.items()},
        "early": early(),
        "added": added(),
        "outside": outside_a_step(),
        "checkpointed": checkpointed(),
        "sparse": sparse(),
        "mistakes": mistakes(),
    }
