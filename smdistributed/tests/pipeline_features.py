"""Runs in each rank of a launch: features besides training steps, compared with one process."""

import copy
import math
from types import SimpleNamespace

import pipeline_cases
import pipeline_models
import smdistributed.modelparallel.torch as smp
import torch
from torch import nn


def start(kind, model=None, **options):
    """A wrapped model and optimizer, and the same model for one process."""
    pipeline_cases.start({"partitions": 2, "microbatches": 2, "ddp": True, **options})
    plain = model if model is not None else pipeline_models.build(kind)
    alone = copy.deepcopy(plain)
    optimizer = smp.DistributedOptimizer(pipeline_cases.optimizer_of(plain))
    return smp.DistributedModel(plain), optimizer, alone


def train_step(kind):
    @smp.step
    def train_step(model, *tensors):
        output, loss = pipeline_models.call(kind, model, tensors)
        model.backward(loss)
        return output, loss

    return train_step


def mine(kind, seed, size):
    share = size // smp.dp_size()
    whole = pipeline_models.batch(kind, seed, size)
    return whole, [each[smp.dp_rank() * share : (smp.dp_rank() + 1) * share] for each in whole]


def reference(kind, alone, tensors, parts):
    """Add the gradients of one process to the existing ones."""
    size = len(tensors[0]) // parts
    for place in range(parts):
        part = [each[place * size : (place + 1) * size] for each in tensors]
        (pipeline_models.call(kind, alone, part)[1] / parts).backward()
    return {name: each.grad for name, each in alone.named_parameters() if each.grad is not None}


def accumulated(steps, factor=1, **options):
    """The gradients after some steps without zero_grad, compared. options: of DistributedModel."""
    pipeline_cases.start({"partitions": 2, "microbatches": 2, "ddp": True})
    plain = pipeline_models.build("mlp")
    alone = copy.deepcopy(plain)
    model = smp.DistributedModel(plain, **options)
    for seed in range(steps):
        whole, tensors = mine("mlp", seed, 8)
        train_step("mlp")(model, *tensors)
        expected = reference("mlp", alone, whole, 2 * smp.dp_size())
    expected = {name: factor * each for name, each in expected.items()}
    return pipeline_cases.worst(pipeline_cases.gradients_of(model), expected)


def gradients_add_up():
    return accumulated(2)


def some_passes_per_exchange():
    """With backward_passes_per_step replicas exchange gradients once in two steps."""
    return accumulated(2, backward_passes_per_step=2)


def sums_over_microbatches():
    return accumulated(1, factor=2, average_grads_across_microbatches=False)


def evaluates():
    """A step without gradients: torch.no_grad inside the step function, then also outside."""
    model, _, alone = start("bert")
    _, tensors = mine("bert", 1, 8)

    @smp.step
    def test_step(model, *tensors):
        model.eval()
        with torch.no_grad():
            return {"logits": model(*tensors[:2]).start_logits, "loss": 1.5}

    outputs = test_step(model, *tensors)
    with torch.no_grad():
        again = test_step(model, *tensors)["logits"].concat()
        expected = alone.eval()(*tensors[:2]).start_logits
    assert outputs["loss"] == [1.5, 1.5]
    assert torch.equal(outputs["logits"].concat(), again)
    assert all(each.grad is None for each in model.local_parameters())
    return float((again - expected).abs().max())


def checkpointed():
    """Gradient checkpointing of transformers and of the library works on the modules' ranks."""
    plain = pipeline_models.build("bert")
    plain.gradient_checkpointing_enable()
    model, _, alone = start("bert", plain)
    alone.gradient_checkpointing_disable()
    whole, tensors = mine("bert", 1, 8)
    train_step("bert")(model, *tensors)
    expected = reference("bert", alone, whole, 2 * smp.dp_size())
    one = pipeline_cases.worst(pipeline_cases.gradients_of(model), expected)
    plain = pipeline_models.build("mlp")
    smp.set_activation_checkpointing(plain.blocks)
    smp.set_activation_checkpointing(plain.out)
    model, _, _ = start("mlp", plain)
    whole, tensors = mine("mlp", 1, 8)
    train_step("mlp")(model, *tensors)
    expected = reference("mlp", pipeline_models.build("mlp"), whole, 2 * smp.dp_size())
    return max(one, pipeline_cases.worst(pipeline_cases.gradients_of(model), expected))


def autocast():
    """A remote call uses the caller's autocast."""
    model, _, alone = start("bert")
    _, tensors = mine("bert", 1, 8)

    @smp.step
    def test_step(model, *tensors):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(*tensors[:2]).start_logits

    logits = test_step(model, *tensors).concat()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        halves = zip(*(each.chunk(2) for each in tensors[:2]), strict=True)
        expected = torch.cat([alone(*half).start_logits for half in halves])
    assert logits.dtype == expected.dtype == torch.bfloat16
    return float((logits - expected).abs().max())


def hooks():
    """Hooks run once after the partition and once after the next step; forward hooks run once on the module's rank."""
    model, optimizer, _ = start("mlp")
    seen = []
    model.register_post_partition_hook(lambda m, o: seen.append(("partition", m is model, o is optimizer)))
    model.register_post_partition_hook(lambda m, o: seen.append("never")).remove()
    model.register_post_step_hook(lambda m, o: seen.append("step"))
    counts = dict.fromkeys(["a", "out"], 0)

    def count(name):
        def hook(module, inputs, output):
            counts[name] += 1

        return hook

    for name in counts:
        model.module.get_submodule(name).register_forward_hook(count(name))
    _, tensors = mine("mlp", 0, 8)
    assert not model.partitioned
    for _ in range(2):
        train_step("mlp")(model, *tensors)
    assert model.partitioned
    assert seen == [("partition", True, True), "step"], seen
    return smp.allgather(counts, smp.PP_GROUP)


def resumes():
    """A new model with a partial or full state has the same next loss to the last bit."""
    model, optimizer, _ = start("gpt2", deterministic_server=True)
    _, tensors = mine("gpt2", 0, 8)
    step = train_step("gpt2")

    def go(model, optimizer, count):
        for _ in range(count):
            optimizer.zero_grad()
            losses = step(model, *tensors)[1].stack()
            optimizer.step()
        return losses

    go(model, optimizer, 2)
    states = [(model.local_state_dict(), optimizer.local_state_dict()), (model.state_dict(), optimizer.state_dict())]
    states = [copy.deepcopy(each) for each in states]
    expected, equal = go(model, optimizer, 2), []
    for model_state, optimizer_state in states:
        model, optimizer, _ = start("gpt2", deterministic_server=True)
        model.load_state_dict(model_state)
        optimizer.load_state_dict(optimizer_state)
        equal.append(torch.equal(go(model, optimizer, 2), expected))
    model.load_state_dict(states[0][0])
    model.load_state_dict(states[1][0])
    whole = model.state_dict()
    assert list(whole) == list(pipeline_models.build("gpt2").state_dict())
    assert all(torch.equal(whole[name], each) for name, each in states[1][0].items())
    try:
        model.load_state_dict({"nothing": torch.ones(1)})
    except RuntimeError as error:
        equal.append("does not fit" in str(error))
    return equal


class Statistics(nn.Module):
    """Running statistics on every partition, and arguments that are not split."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)) for _ in range(4))

    def forward(self, x, scale):
        for layer in self.layers:
            x = layer(x) * scale
        return x


def statistics():
    """Buffers of all partitions, averaged gradients, non_split_inputs and input_split_axes."""
    torch.manual_seed(0)
    model, _, alone = start("", Statistics())

    @smp.step(non_split_inputs=["scale"], input_split_axes={"x": 1}, detach_outputs=False)
    def train_step(model, x, scale):
        output = model(x.t(), scale)
        model.backward(output.square().mean())
        return output

    x, scale = torch.randn(6, 8, generator=torch.Generator().manual_seed(1)), torch.full((6,), 0.5)
    output = train_step(model, x, scale)
    for part in x.chunk(2, 1):
        (alone(part.t(), scale).square().mean() / 2).backward()
    gradients = {name: each.grad for name, each in alone.named_parameters()}
    assert smp.pp_rank() or output[0].requires_grad
    return max(
        pipeline_cases.worst(model.state_dict(), alone.state_dict()),
        pipeline_cases.worst(pipeline_cases.gradients_of(model), gradients),
    )


class Keeps(nn.Module):
    """Changes its arguments in place: a list, a nested dict, an object, a tensor in a list."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(20, 20)

    def forward(self, x, seen, notes, holder, *, more=None):
        x = torch.tanh(self.linear(x))
        seen.append(x * 2)
        notes["inner"]["last"] = x + notes["inner"].get("last", 0)
        notes["first"] = notes.get("first", x)
        holder.count += 1
        holder.tensor = x
        if more:
            more[0].add_(1)
        return x, notes


class Changing(nn.Module):
    """Each block takes the arguments that the previous one changed."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Keeps() for _ in range(4))

    def forward(self, x):
        seen, inner, holder, more = [], {}, SimpleNamespace(count=0, tensor=None), [x.detach() * 0]
        notes = {"inner": inner}
        for place, block in enumerate(self.blocks):
            x, returned_notes = block(x, seen, notes, holder, more=more if place % 2 else None)
            assert returned_notes is notes, "the caller's own"
        assert notes["inner"] is inner
        assert (len(seen), holder.count) == (4, 4)
        return sum(seen) + inner["last"] + notes["first"] + holder.tensor + more[0]


def changed_in_place():
    """A module of another rank changes arguments in three steps; the last ones use predicted results."""
    torch.manual_seed(0)
    model, _, alone = start("", Changing())

    @smp.step
    def train_step(model, x):
        output = model(x)
        model.backward(output.square().mean())
        return output

    worst = 0.0
    for seed in range(3):
        x = torch.randn(8, 20, generator=torch.Generator().manual_seed(seed))
        output = train_step(model, x).concat().detach()
        expected = [alone(part) for part in x.chunk(2)]
        for part in expected:
            (part.square().mean() / 2).backward()
        worst = max(worst, float((output - torch.cat(expected).detach()).abs().max()))
    gradients = {name: each.grad for name, each in alone.named_parameters()}
    return max(worst, pipeline_cases.worst(pipeline_cases.gradients_of(model), gradients))


def wire_bytes():
    """The bytes that each rank sends in a step of BERT, and the batch's shape."""
    model, _, _ = start("bert", microbatches=4)

    @smp.step
    def train_step(model, *tensors):
        model.backward(pipeline_models.call("bert", model, tensors)[1])

    _, tensors = mine("bert", 0, 8 * smp.dp_size())
    train_step(model, *tensors)
    before = model._wire.sent_bytes
    train_step(model, *tensors)
    sent = smp.allgather(model._wire.sent_bytes - before, smp.PP_GROUP)
    return sent, tuple(tensors[0].shape)


def clipped():
    """The clipped norm and gradients, compared with torch's function in one process."""
    model, optimizer, alone = start("mlp")
    whole, tensors = mine("mlp", 1, 8)
    errors = []
    for clip, kind in (
        (model.clip_grad_norm_, 2.0), (model.clip_grad_norm_, math.inf), (optimizer.clip_master_grads, 2.0),
    ):  # fmt: skip
        optimizer.zero_grad()
        alone.zero_grad()
        train_step("mlp")(model, *tensors)
        expected = reference("mlp", alone, whole, 2 * smp.dp_size())
        norm = nn.utils.clip_grad_norm_(alone.parameters(), math.inf, kind)
        nn.utils.clip_grad_norm_(alone.parameters(), norm / 2, kind)
        errors.append(abs(float(clip(float(norm) / 2, kind)) - float(norm)))
        errors.append(pipeline_cases.worst(pipeline_cases.gradients_of(model), expected))
    local_norms = smp.allgather(float(nn.utils.clip_grad_norm_(model.parameters(), math.inf)), smp.PP_GROUP)
    assert min(local_norms) > 0, "torch's function must see gradients on every rank"
    return max(*errors, abs(math.hypot(*local_norms) - float(norm) / 2))


ALL = (
    gradients_add_up, some_passes_per_exchange, sums_over_microbatches, evaluates, checkpointed, autocast, hooks,
    resumes, statistics, wire_bytes, changed_in_place, clipped,
)  # fmt: skip
