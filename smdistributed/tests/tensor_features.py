"""Runs in each rank of a launch: what tensor parallelism does besides computing the results of one process."""

import contextlib
import io
import pathlib

import pipeline_cases
import pipeline_models
import smdistributed.modelparallel.torch as smp
import torch
from smdistributed.modelparallel.torch.tensor.split import split_of
from torch import nn

KIND, ROWS = "bert-3", 8


def fresh(kind=KIND, *, mark=True, dropout=0.0, checkpoints=False, **options):
    """A new wrapped model and optimizer."""
    pipeline_cases.start({"tensor_parallel_degree": 2, "microbatches": 2, "ddp": True, **options})
    with smp.tensor_parallelism(mark):
        plain = pipeline_models.build(kind)
    for each in plain.modules():
        if isinstance(each, nn.Dropout):
            each.p = dropout
    model = smp.DistributedModel(plain)
    if checkpoints:
        for each in model.distributed_modules():
            smp.set_activation_checkpointing(each)
    return model, smp.DistributedOptimizer(pipeline_cases.optimizer_of(model))


@smp.step
def train_step(model, *tensors, kind=KIND):
    loss = pipeline_models.call(kind, model, tensors)[1]
    model.backward(loss)
    return loss


def own_rows(seed, kind=KIND):
    parts, part = pipeline_cases.batches()
    return [each.chunk(parts)[part] for each in pipeline_models.batch(kind, seed, ROWS)]


def train(model, optimizer, seeds, kind=KIND):
    """The losses of some steps."""
    losses = []
    for seed in seeds:
        optimizer.zero_grad()
        losses.append(float(train_step(model, *own_rows(seed, kind), kind=kind).reduce_mean()))
        optimizer.step()
    return losses


def results(model, optimizer):
    states = optimizer.state_dict()["state"]
    return model.state_dict(), {place: each["momentum_buffer"] for place, each in states.items()}


def equal(one, other):
    return all(
        list(a) == list(b) and all(torch.equal(a[key], b[key]) for key in a) for a, b in zip(one, other, strict=True)
    )


def clips():
    """The norm of the gradients and the clipped gradients, next to those of one process; relative differences."""
    model, _ = fresh()
    train_step(model, *own_rows(0))
    norm = float(model.clip_grad_norm_(0.1))
    clipped = pipeline_cases.gradients_of(model)
    alone = pipeline_cases.OneProcess(KIND, 2 * smp.rdp_size() * smp.tp_size(), ROWS, 1, 0.1).gradients[0]
    expected = float(torch.linalg.vector_norm(torch.stack([each.norm() for each in alone.values()])))
    scaled = {name: each * (0.1 / expected) for name, each in alone.items()}
    return abs(norm - expected) / expected, pipeline_cases.relative(clipped, scaled)


def drops_alike():
    """With hidden dropout, the largest difference of losses with and without activation checkpoints, and by seed."""
    plain = train(*fresh(dropout=0.1), range(3))
    again = train(*fresh(dropout=0.1), range(3))
    checkpointed = train(*fresh(dropout=0.1, checkpoints=True), range(3))
    without = train(*fresh(), range(3))
    return plain == again, max(abs(a - b) for a, b in zip(plain, checkpointed, strict=True)), plain != without


def with_hidden_dropout(kind, **options):
    """The losses of all ranks' one batch; the same on any number of tensor parallel ranks."""
    model, optimizer = fresh(kind, prescaled_batch=True, **options)
    for name, each in model.module.named_modules():
        if isinstance(each, nn.Dropout) and not name.endswith(("attention.self.dropout", "attention_dropout")):
            each.p = 0.1
        if "hidden_dropout" in vars(each):
            each.hidden_dropout = 0.1  # of Bloom's attention and MLP
    return train(model, optimizer, range(3), kind)


def outside_a_step():
    """Gradients of loss.backward() without smp.step, after one that failed; relative difference to one process."""
    if smp.state.cfg.pipeline_parallel_degree > 1:
        return 0.0
    model, _ = fresh(microbatches=1)

    def fail(_):
        raise KeyError("in the middle of the backward pass")

    failing = model.module.bert.embeddings.word_embeddings.weight.register_hook(fail)
    assert pipeline_cases.raised(pipeline_models.call(KIND, model, own_rows(1))[1].backward)
    failing.remove()
    model.zero_grad()
    pipeline_models.call(KIND, model, own_rows(0))[1].backward()
    count = smp.rdp_size() * smp.tp_size()
    alone = pipeline_cases.OneProcess(KIND, count, ROWS, 1, 0.1).gradients[0]
    return pipeline_cases.relative(pipeline_cases.gradients_of(model), alone)


def resumes(folder, **options):
    """Whether 2 + 2 steps equal 4, to the last bit, with each kind of checkpoint."""
    model, optimizer = fresh(**options)
    train(model, optimizer, range(2))
    for partial in (True, False):
        smp.save_checkpoint(folder, "second", partial, model, optimizer, {"steps": 2})
    smp.barrier()
    losses = train(model, optimizer, range(2, 4))
    expected = results(model, optimizer)
    answers = []
    for partial in (True, False):
        model, optimizer = fresh(**options)
        assert smp.resume_from_checkpoint(folder, "second", partial) == {"steps": 2}
        answers.append(train(model, optimizer, range(2, 4)) == losses and equal(results(model, optimizer), expected))
    names = sorted(each.name for each in pathlib.Path(folder, "second_partial").iterdir())
    return answers, names


def loads_elsewhere(folder):
    """The full checkpoint of `resumes` in one process, and by from_pretrained: largest differences."""
    states = torch.load(f"{folder}/second", weights_only=True)
    plain = pipeline_models.build(KIND)
    plain.load_state_dict(states)
    if smp.rank():
        return 0.0  # transformers writes on the first rank of a job only
    plain.save_pretrained(f"{folder}/pretrained")
    loaded = type(plain).from_pretrained(f"{folder}/pretrained").state_dict()
    return max(float((each - states[name]).abs().max()) for name, each in loaded.items())


def holds():
    """The part of the parameters that this rank holds, and names that published scripts ask for."""
    model, _ = fresh()
    train_step(model, *own_rows(0))
    whole = sum(each.numel() for each in pipeline_models.build(KIND).parameters())
    shares = dict(model.scaled_batch_reducer_named_parameters())
    rest = dict(model.default_reducer_named_parameters())
    assert shares
    assert not shares.keys() & rest.keys()
    assert all(
        model.is_distributed_parameter(each) and model.is_scaled_batch_parameter(each) for each in shares.values()
    )
    assert not any(map(model.is_distributed_buffer, model.local_buffers()))
    return sum(each.numel() for each in model.local_parameters()) / whole


def chosen():
    """Names of distributed modules, if the script marks some by context and others by function."""
    pipeline_cases.start({"tensor_parallel_degree": 2, "microbatches": 2, "ddp": True})

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            with smp.tensor_parallelism():
                self.first = nn.Linear(20, 20)
                with smp.tensor_parallelism(enabled=False):
                    self.second = nn.Linear(20, 20)
                self.words = nn.Embedding(8, 20)
            self.third, self.fourth = nn.Linear(20, 20), nn.Linear(20, 20)
            self.narrow, self.vectors = nn.Linear(1, 3), nn.Embedding(8, 20)
            self.tied = nn.Linear(20, 8)
            self.tied.weight = self.vectors.weight
            self.layer = pipeline_models.build("bert-1").bert.encoder.layer[0]

    plain = Net()
    for each in (plain.third, plain.narrow, plain.layer, plain.tied, plain.words):
        smp.set_tensor_parallelism(each)
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        model = smp.DistributedModel(plain)
    modules = {id(each) for each in model.distributed_modules()}
    late = pipeline_cases.raised(smp.set_tensor_parallelism, plain.fourth)
    return [name for name, each in plain.named_children() if id(each) in modules], late, printed.getvalue()


def lines_about_whole_layers():
    """Kind of model → what the first rank prints about its layers that stay whole, and the number that are split."""
    lines = {}
    for kind in ("t5", "falcon_of_7b", "falcon_of_rw", "bloom", TorchLayers):
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed):
            model, _ = fresh(kind)
        about = [each for each in printed.getvalue().splitlines() if "not split" in each]
        lines[pipeline_models.name_of(kind)] = about, len(list(model.distributed_modules()))
    return lines


class TorchLayers:
    """Layers of torch."""

    @staticmethod
    def build():
        layers = [nn.TransformerEncoderLayer(16, 4, 31, batch_first=True) for _ in range(3)]
        return nn.Sequential(*layers, nn.MultiheadAttention(16, 4), nn.Linear(16, 16))


def mistakes():
    """What is raised for mistakes, by kind."""
    model, _ = fresh()
    answers = {"module's state": pipeline_cases.raised(model.module.state_dict)}
    ids, mask, *_ = own_rows(0)
    answers["unknown input"] = pipeline_cases.raised(model.module.bert, input_ids=ids, encoder_attention_mask=mask)
    return answers


def half(kind):
    """Losses and parameters in half precision, next to a group of one rank; the largest absolute difference."""
    runs = []
    for degree in (2, 1):
        pipeline_cases.start({"tensor_parallel_degree": degree, "microbatches": 2, "ddp": True, kind: True})
        with smp.tensor_parallelism():
            plain = pipeline_models.build(KIND)
        model, scale = smp.DistributedModel(plain), {"static_loss_scale": 64.0}
        optimizer = smp.DistributedOptimizer(pipeline_cases.optimizer_of(model), **scale)
        train(model, optimizer, range(4))
        runs.append(model.state_dict())
    return pipeline_cases.worst(*runs)


def overflows():
    """Whether a gradient that is infinite in the share of one rank skips the step on all ranks."""
    model, _ = fresh(fp16=True)
    optimizer = smp.DistributedOptimizer(smp.state.optimizer)
    train_step(model, *own_rows(0))
    share = next(each for each in model.local_parameters() if split_of(each))
    before = [each.detach().clone() for each in model.local_parameters()]
    if smp.rank() == smp.size() - 1:
        share.grad[0] = float("inf")
    optimizer.step()
    same = all(torch.equal(one, other) for one, other in zip(before, model.local_parameters(), strict=True))
    return optimizer.overflow, same


def all_features(folder):
    return {
        "clips": clips(),
        "drops alike": drops_alike(),
        "outside": outside_a_step(),
        "resumes": resumes(f"{folder}/checkpoints"),
        "elsewhere": loads_elsewhere(f"{folder}/checkpoints"),
        "holds": holds(),
        "chosen": chosen(),
        "whole layers": lines_about_whole_layers(),
        "mistakes": mistakes(),
        "half": {kind: half(kind) for kind in ("fp16", "bf16")},
        "overflows": overflows(),
        "with hidden dropout": {kind: with_hidden_dropout(kind) for kind in (KIND, "bloom")},
    }
