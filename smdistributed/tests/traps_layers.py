"""Runs in each rank of a launch: traps of split layers, each with a context without its cure; see tensor_traps.py."""

import gc
import traceback
import weakref
from unittest import mock

import pipeline_cases
import pipeline_models
import smdistributed.modelparallel.torch as smp
import tensor_features
import torch
from smdistributed.modelparallel.parameters import parse
from smdistributed.modelparallel.torch import model, module_tree, seeds
from smdistributed.modelparallel.torch.groups import TP_GROUP
from smdistributed.modelparallel.torch.partition import plan
from smdistributed.modelparallel.torch.tensor import choice, functions, regions
from torch import nn

STEPS, ROUNDING = 3, 1e-5
SPLIT = {"tensor_parallel_degree": 2, "microbatches": 2, "ddp": True}
IN_TWO = {**SPLIT, "partitions": 2}
MANUAL = {**IN_TWO, "auto_partition": False, "default_partition": 0}
patched = mock.patch.object


def wrong(kind, config, place=None):
    """What differs from one process by more than rounding errors; on rank 0 only."""
    try:
        bad = pipeline_cases.equality(kind, config, STEPS, place).get("bad", {})
    except AssertionError as error:  # rank 0 compares alone, so the ranks stay together
        return f"only one of the trainings has gradients of {str(error)[:200]}"
    return ", ".join(f"{name} by {error:.1e}" for name, (error, _) in bad.items())


def raised(function, *args):
    """The exception with its causes; "" if there is none."""
    try:
        function(*args)
    except Exception:
        return traceback.format_exc()
    return ""


def unchanged(value):
    return value


# 1. Whether a layer gets a mask depends on the data: only the second half of the rows has padding.


def padding_on_one_rank():
    plain = pipeline_models.batch_on_cpu

    def batch(kind, seed, size):
        ids, mask, *rest = plain(kind, seed, size)
        mask[: size // 2] = 1
        return ids, mask, *rest

    with patched(pipeline_models, "batch_on_cpu", batch):
        return wrong("bert", SPLIT)


def regions_per_layer():
    return patched(choice, "region_of", lambda root, name: name)


# 2. Of three heads one rank has two, so its layers are larger.


def partitions_differ():
    """Whether the ranks of a group would cut some model in different ways."""
    differ = []
    for kind in ("bert-3", "gpt2-3", "gptj-5", "neox-3", "vit-3"):
        wrapped, _ = tensor_features.fresh(kind)
        for count in (2, 3, 4):
            cut = plan(wrapped.module, parse({"partitions": count}))
            if any(each != cut for each in smp.allgather(cut, TP_GROUP)):
                differ.append(f"{kind} in {count}")
    return ", ".join(differ)


def uneven_heads():
    return wrong("gpt2-3", IN_TWO)


def local_sizes():
    return patched(module_tree, "_elements", lambda tensor: tensor.numel())


# 3. A tensor whose attributes hold a view of it.


def stays_alive():
    """How many tensors of a step nothing frees after it."""
    wrapped, _ = tensor_features.fresh()
    inputs = []
    for layer in wrapped.module.bert.encoder.layer:
        layer.register_forward_pre_hook(lambda _, args: inputs.append(weakref.ref(args[0])))
    tensor_features.train_step(wrapped, *tensor_features.own_rows(0))
    gc.collect()
    alive = sum(each() is not None for each in inputs)
    return f"{alive} of {len(inputs)} inputs of layers" if alive else ""


def returns_a_view():
    return patched(functions.Shared, "forward", staticmethod(lambda ctx, tensor: tensor.view_as(tensor)))


# 4. The first rank computes with tensors of another partition: the last layer's output, or each second layer's.


def output_elsewhere():
    return wrong("bert-3", IN_TWO)


def regions_use_shells():
    return patched(regions, "local", unchanged)


def alternating_layers():
    def place(plain):
        for index, layer in enumerate(plain.bert.encoder.layer):
            smp.set_partition(layer, index % 2)

    return wrong("bert-3", MANUAL, place)


def matrices_use_shells():
    return patched(functions, "local", unchanged, create=True)


# 5. Dropout after the attention of GPT-2, which all ranks of a group must draw alike.


def losses_differ(config=SPLIT, place=None):
    """Whether the ranks of a group, which have one batch, get different losses."""
    pipeline_cases.start({**config, "prescaled_batch": True})
    with smp.tensor_parallelism():
        plain = pipeline_models.build("gpt2")
    for each in plain.modules():
        if isinstance(each, nn.Dropout):
            each.p = 0.1
    if place:
        place(plain)
    wrapped = smp.DistributedModel(plain)

    @smp.step
    def train_step(wrapped, *tensors):
        loss = pipeline_models.call("gpt2", wrapped, tensors)[1]
        wrapped.backward(loss)
        return loss

    losses = [
        float(train_step(wrapped, *pipeline_models.batch("gpt2", seed, 4)).reduce_mean()) for seed in range(STEPS)
    ]
    first, second = smp.allgather(losses, TP_GROUP)
    return "" if first == second else f"losses of {first} and {second}"


def one_stream_below():
    plain = seeds._Caller
    return patched(seeds, "_Caller", lambda module, before, seed: plain(module, before, None))


# 12. Scripts ask for names of AWS's layers, however many ranks split them.


def lacks_names():
    """Names that GPT-2 lacks with one rank per group."""
    pipeline_cases.start({"ddp": True})
    with smp.model_creation(tensor_parallelism=True, dtype=torch.float32):
        plain = pipeline_models.build("gpt2")
    return raised(use_names, smp.DistributedModel(plain))


def use_names(wrapped):
    for layer in wrapped.module.transformer.seq_layers:
        assert layer.attention is not None
        assert layer.output is not None
    smp.set_activation_checkpointing(wrapped.module.transformer.seq_layers)


def no_names():
    return patched(model, "give_names", lambda root: None)


# 16. Dropout in the attention of a layer, on another partition than the attention.


def cuts_into_a_layer():
    """Whether ranks with one batch get different losses."""

    def place(plain):
        smp.set_partition(plain.transformer.h[3], 1)
        smp.set_partition(plain.transformer.h[0].attn.resid_dropout, 1)

    return losses_differ(MANUAL, place)


def layers_open():
    return patched(module_tree, "is_distributed", lambda module: False)
