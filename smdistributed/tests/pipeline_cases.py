"""Runs in each rank of a launch: cases, each compared on rank 0 with one process."""

import functools
import itertools
import time
from dataclasses import dataclass

import pipeline_models
import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist
from new_start import start
from random_delays import random_delays
from smdistributed.modelparallel.torch.tensor.split import split_of
from torch import nn

STEPS, RATE, LIMIT = 9, 0.1, 2e-6
RATES = {"minilm": 0.01}
"""Learning rates of models whose training diverges with RATE."""
BIT_EQUAL = {
    2: ("mlp", "dicts", "vit", "roberta", "bert", "minilm", "gpt2"),
    4: ("mlp", "roberta", "bert", "minilm", "gpt2"),
}
"""Number of partitions → models that deterministic_server makes bit-equal to one process. In other models several ranks
use one tensor: its backward pass then runs once per rank, and the same numbers are summed in another order."""


@dataclass(frozen=True)
class Training:
    """How a case trains. max_norm: clip the gradients to it, unless it is None.

    Only in the pipeline: checkpoints: of the activations of all layers. delays: the seed of random delays, or None.
    """

    max_norm: float | None = None
    checkpoints: bool = False
    delays: int | None = None


PLAIN = Training()


def raised(function, *args, **kwargs):
    """The name and text of the exception, or None."""
    try:
        function(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def optimizer_of(model, rate=RATE):
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)


class OneProcess:
    """The same training without the library."""

    def __init__(self, kind, microbatches, size, steps, rate, max_norm=None):
        model = pipeline_models.build(kind)
        optimizer = optimizer_of(model, rate)
        self.losses, self.gradients, self.clipped_steps = [], [], 0
        for seed in range(steps):
            optimizer.zero_grad()
            tensors, losses = pipeline_models.batch(kind, seed, size), []
            for part in zip(*(each.chunk(microbatches) for each in tensors), strict=True):
                losses.append(pipeline_models.call(kind, model, part)[1])
                (losses[-1] / microbatches).backward()
            self.losses.append(float(torch.stack(losses).detach().mean()))
            if max_norm is not None:
                self.clipped_steps += float(nn.utils.clip_grad_norm_(model.parameters(), max_norm)) > max_norm
            named = [(name, each.grad) for name, each in model.named_parameters()]
            self.gradients.append({name: each.clone() for name, each in named if each is not None})
            optimizer.step()
        state = optimizer.state_dict()["state"]
        self.parameters = model.state_dict()
        self.momentum = {place: each["momentum_buffer"] for place, each in state.items()}


one_process = functools.lru_cache(maxsize=2)(OneProcess)
"""The latest references; consecutive cases share them."""


def batches():
    """The number of batches that the ranks of the job have together, and the place of this rank's."""
    if smp.state.cfg.prescaled_batch:
        return smp.rdp_size(), smp.rdp_rank()
    return smp.dp_size(), smp.dp_rank()


def reference(kind, microbatches, steps=STEPS, max_norm=None):
    """The expected results of all ranks, which have this many microbatches of two rows."""
    return one_process(kind, microbatches, 2 * microbatches, steps, RATES.get(kind, RATE), max_norm)


def worst(one, other):
    assert one.keys() == other.keys(), one.keys() ^ other.keys()
    return max((float((one[name].float().cpu() - other[name].float().cpu()).abs().max()) for name in one), default=0.0)


def relative(one, other):
    """The largest difference divided by the largest value."""
    largest = max((float(each.abs().max()) for each in other.values()), default=0.0)
    return worst(one, other) / (largest or 1.0)


def differences(one, other):
    """Relative differences of two trainings: loss and gradients of all steps, final parameters and momentum."""
    losses, steps = zip(one.losses, other.losses, strict=True), zip(one.gradients, other.gradients, strict=True)
    return {
        "loss": max(abs(a - b) / abs(b) for a, b in losses),
        "gradients": max(relative(a, b) for a, b in steps),
        "parameters": relative(one.parameters, other.parameters),
        "momentum": relative(one.momentum, other.momentum),
    }


def whole(tensor):
    """A tensor with the rows of all ranks, if it is sharded."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def gradients_of(model):
    """Name → gradient, of all partitions and with the shares of all tensor parallel ranks."""
    local = {}
    for name, parameter in model.local_named_parameters():
        if parameter.grad is not None:
            gradient, split = whole(parameter.grad).clone(), split_of(parameter)
            local[name] = split.whole(smp.allgather(gradient, smp.TP_GROUP)) if split else gradient
    parts = smp.allgather(local, smp.PP_GROUP)
    return {name: each for part in parts for name, each in part.items()}


def drift(model):
    """The largest difference between ranks in parameters of which they have copies.

    All ranks of a partition have those that are not split; replicas also have the same shares of those that are split.
    """
    parameters = {name: (whole(each.detach()), split_of(each)) for name, each in model.local_named_parameters()}
    same = {name: each for name, (each, split) in parameters.items() if split is None}
    shares = {name: each for name, (each, split) in parameters.items() if split is not None}
    largest = 0.0
    for copies, group in ((same, smp.DP_GROUP), (shares, smp.RDP_GROUP)):
        largest = max(largest, *(worst(other, copies) for other in smp.allgather(copies, group)))
    return max(smp.allgather(largest, smp.WORLD))


@functools.lru_cache(maxsize=8)
def noise(kind, count, steps, max_norm=None):
    """The largest differences between runs of one process with 1, 2, `count` and twice `count` microbatches.

    They are rounding errors. All pairs are compared, because one pair says little about the size of such errors.
    """
    size, rate = 2 * count, RATES.get(kind, RATE)
    others = [OneProcess(kind, other, size, steps, rate, max_norm) for other in {1, 2, size} - {count}]
    runs = [one_process(kind, count, size, steps, rate, max_norm), *others]
    pairs = [differences(one, other) for one, other in itertools.combinations(runs, 2)]
    return {name: max(each[name] for each in pairs) for name in pairs[0]}


def checkpoint_layers(model):
    """Checkpoint the activations of each member of the model's outermost lists of modules."""
    for each in model.children():
        if isinstance(each, nn.ModuleList | nn.Sequential):
            smp.set_activation_checkpointing(each)
        else:
            checkpoint_layers(each)


class Pipeline:
    """A training by all ranks. Every rank has the losses, gradients, parameters and momentum of the whole job.

    place: a function that puts the model's modules onto partitions. embeddings: split them over tensor parallel ranks.
    """

    def __init__(self, kind, size, steps, place=None, *, embeddings=False, training=PLAIN):
        with smp.tensor_parallelism(distribute_embedding=embeddings):
            plain = pipeline_models.build(kind)
        if place:
            place(plain)
        optimizer = smp.DistributedOptimizer(optimizer_of(plain, RATES.get(kind, RATE)))
        model = smp.DistributedModel(plain)
        if training.checkpoints:
            checkpoint_layers(model.module)

        @smp.step
        def train_step(model, *tensors):
            output, loss = pipeline_models.call(kind, model, tensors)
            model.backward(loss)
            return output, loss

        self.losses, self.gradients = [], []
        parts, part = batches()
        for seed in range(steps):
            whole = pipeline_models.batch(kind, seed, size)
            mine = [each.chunk(parts)[part] for each in whole]
            if smp.pp_rank():
                mine = [torch.zeros_like(each) for each in mine]  # only pp_rank 0 has data, as in published scripts
            optimizer.zero_grad()
            _, loss = train_step(model, *mine)
            mean = loss.reduce_mean()
            dist.all_reduce(mean, group=smp.get_dp_process_group())
            self.losses.append(float(mean) / smp.dp_size())
            if training.max_norm is not None:
                model.clip_grad_norm_(training.max_norm)
            self.gradients.append(gradients_of(model))
            optimizer.step()
        self.drift, self.distributed = drift(model), len(list(model.distributed_modules()))
        self.parameters = model.state_dict()
        self.momentum = {name: each["momentum_buffer"] for name, each in optimizer.state_dict()["state"].items()}


def equality(kind, config, steps=STEPS, place=None, *, embeddings=False, training=PLAIN):
    """Errors against one process after some steps; {} on ranks other than 0.

    The limit is 2e-6, or three times `noise` if that is more. It is 0 with deterministic_server if one process sums the
    same numbers in the same order.
    """
    start(config)
    began = time.time()
    count = config["microbatches"] * batches()[0]
    with random_delays(training.delays):
        pipeline = Pipeline(kind, 2 * count, steps, place, embeddings=embeddings, training=training)
    if smp.rank():
        return {}
    alone = reference(kind, count, steps, training.max_norm)
    errors = differences(pipeline, alone)
    # Halves and quarters of a loss have gradients that are halves and quarters, to the last bit.
    bit_equal = config.get("deterministic_server") and smp.dp_size() == 1 and count in (1, 2, 4, 8)
    bit_equal = bit_equal and kind in BIT_EQUAL[smp.pp_size()] and pipeline_models.DEVICE == "cpu"
    limits = dict.fromkeys(errors, 0.0 if bit_equal else LIMIT)
    if max(errors.values()) > LIMIT and not bit_equal:
        limits = {name: max(LIMIT, 3 * each) for name, each in noise(kind, count, steps, training.max_norm).items()}
    errors, limits = {**errors, "drift": pipeline.drift}, {**limits, "drift": 0.0}
    bad = {name: (each, limits[name]) for name, each in errors.items() if each > limits[name]}
    seconds = time.time() - began
    print(f"{kind} {config} {errors} {seconds:.1f} s", flush=True)
    case = {"case": f"{kind} {config}", "errors": errors, "bad": bad, "limits": limits, "seconds": seconds}
    return {**case, "distributed": pipeline.distributed, "clipped_steps": alone.clipped_steps}
