"""Runs in each rank of a launch: cases one after the other, each compared with one process on rank 0."""

import copy
import time

import pipeline_models
import smdistributed.modelparallel.torch as smp
import torch
import torch.distributed as dist

STEPS, RATE = 9, 0.1


def start(config):
    """As in a new process."""
    smp.state.initialized, smp.state.model, smp.state.optimizer = False, None, None
    smp.init(config)


def optimizer_of(model):
    return torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)


class OneProcess:
    """The same training without any library."""

    def __init__(self, kind, model, microbatches, rate=RATE):
        self.kind, self.model, self.microbatches = kind, copy.deepcopy(model), microbatches
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.9)

    def step(self, tensors):
        self.optimizer.zero_grad()
        size, total = len(tensors[0]) // self.microbatches, 0.0
        for place in range(self.microbatches):
            part = [each[place * size : (place + 1) * size] for each in tensors]
            loss = pipeline_models.call(self.kind, self.model, part)[1] / self.microbatches
            loss.backward()
            total += float(loss.detach())
        gradients = {n: p.grad.clone() for n, p in self.model.named_parameters() if p.grad is not None}
        self.optimizer.step()
        return total, gradients

    def results(self):
        state = self.optimizer.state_dict()["state"]
        momentum = {place: each["momentum_buffer"] for place, each in state.items()}
        return {"parameters": self.model.state_dict(), "momentum": momentum}


def worst(one, other):
    assert one.keys() == other.keys(), one.keys() ^ other.keys()
    return max((float((one[name].float() - other[name].float()).abs().max()) for name in one), default=0.0)


def noise(kind, model, microbatches, size, rate=RATE):
    """What two runs of one process with other microbatches differ by."""
    runs = [OneProcess(kind, model, count, rate) for count in (microbatches, 2 * microbatches)]
    loss = gradient = 0.0
    for seed in range(STEPS):
        (l1, g1), (l2, g2) = (run.step(pipeline_models.batch(kind, seed, size)) for run in runs)
        loss, gradient = max(loss, abs(l1 - l2)), max(gradient, worst(g1, g2))
    ends = [run.results() for run in runs]
    return {"loss": loss, "gradients": gradient} | {name: worst(ends[0][name], ends[1][name]) for name in ends[0]}


def gradients_of(model):
    """Of all partitions, by name."""
    local = {n: p.grad.clone() for n, p in model.local_named_parameters() if p.grad is not None}
    parts = smp.allgather(local, smp.PP_GROUP)
    return {name: each for part in parts for name, each in part.items()}


def equality(kind, config, rate=RATE):
    """Errors against one process after STEPS steps; {} on ranks other than 0."""
    start(config)
    began = time.time()
    plain = pipeline_models.build(kind)
    count = config["microbatches"] * smp.dp_size()
    alone = OneProcess(kind, plain, count, rate) if smp.rank() == 0 else None
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(plain.parameters(), lr=rate, momentum=0.9))
    before = copy.deepcopy(plain) if smp.rank() == 0 else None
    model = smp.DistributedModel(plain)

    @smp.step
    def train_step(model, *tensors):
        output, loss = pipeline_models.call(kind, model, tensors)
        model.backward(loss)
        return output, loss

    size = 2 * count
    found = {"loss": 0.0, "gradients": 0.0}
    for seed in range(STEPS):
        whole = pipeline_models.batch(kind, seed, size)
        share = size // smp.dp_size()
        mine = [each[smp.dp_rank() * share : (smp.dp_rank() + 1) * share] for each in whole]
        if smp.pp_rank():
            mine = [torch.zeros_like(each) for each in mine]  # only pp_rank 0 has data, as in published scripts
        optimizer.zero_grad()
        _, loss = train_step(model, *mine)
        mean = loss.reduce_mean()
        dist.all_reduce(mean, group=smp.get_dp_process_group())
        gradients = gradients_of(model)
        optimizer.step()
        if alone is not None:
            expected, of_one = alone.step(whole)
            found["loss"] = max(found["loss"], abs(float(mean) / smp.dp_size() - expected))
            found["gradients"] = max(found["gradients"], worst(gradients, of_one))
    state = optimizer.state_dict()["state"]
    ended = {"parameters": model.state_dict(), "momentum": {n: each["momentum_buffer"] for n, each in state.items()}}
    if alone is None:
        return {}
    found |= {name: worst(ended[name], each) for name, each in alone.results().items()}
    limits = dict.fromkeys(found, 2e-6)
    if max(found.values()) > 2e-6:
        limits = {name: max(2e-6, 3 * each) for name, each in noise(kind, before, count, size, rate).items()}
    bad = {name: (each, limits[name]) for name, each in found.items() if each > limits[name]}
    print(f"{kind} {config} {found} {time.time() - began:.1f} s", flush=True)
    return {"case": f"{kind} {config}", "found": found, "bad": bad}
