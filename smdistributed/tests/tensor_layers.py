"""Runs in each rank of a launch: a model of smp.nn's layers, one of which replaces a registered class."""

import pipeline_cases
import smdistributed.modelparallel.torch as smp
import torch
import torch.nn.functional as F
from torch import nn

NO_DROPOUT = {"attention_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
SIZES = {"num_attention_heads": 3, "attention_head_size": 8, "hidden_size": 24, "intermediate_size": 50, **NO_DROPOUT}


class Own(nn.Module):
    """A script's own transformer, which is never called."""

    def __init__(self, width, depth, heads):
        super().__init__()
        self.unused = nn.Linear(width, width)

    def forward(self, x):
        raise AssertionError


def arguments(width, depth, heads):
    return (), {**SIZES, "hidden_width": width, "num_layers": depth, "num_attention_heads": heads}


def with_mask(x):
    return ((x, x.new_zeros(x.shape[0], 1, 1, x.shape[1])),), {}


smp.tp_register_with_module(Own, smp.nn.DistributedTransformer, arguments, with_mask, lambda result: result[0])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        language = {"vocab_size": 61, "num_positions": 16, "causal_mask_size": 16, "pre_layernorm": True}
        self.language = smp.nn.DistributedTransformerLMHead(
            num_layers=2, post_layernorm=False, add_lm_head=False, **language, **{**SIZES, "activation": "relu"}
        )
        self.own = Own(24, 2, 3)
        self.crossed = smp.nn.DistributedTransformerLayer(add_cross_attention=True, **SIZES)
        self.words, self.head = smp.nn.DistributedEmbedding(61, 24), smp.nn.DistributedLinear(24, 61)

    def forward(self, ids, mask):
        hidden = self.own(self.language((ids, mask, None, None, None)))
        none = hidden.new_zeros(ids.shape[0], 1, 1, ids.shape[1])
        return self.head(self.crossed((hidden, self.words(ids), none, none))[0])


def trained(**options):
    """Losses of the whole job's batches, the weights, and how many modules are distributed."""
    pipeline_cases.start({"microbatches": 2, "ddp": True, "prescaled_batch": True, **options})
    torch.manual_seed(0)
    plain = Net()
    smp.set_tensor_parallelism(plain.own)
    torch.manual_seed(1)
    model = smp.DistributedModel(plain)
    optimizer = smp.DistributedOptimizer(pipeline_cases.optimizer_of(model))

    @smp.step
    def train_step(model, ids, mask):
        logits = model(ids, mask)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        model.backward(loss)
        return loss

    losses = []
    for seed in range(6):
        ids = torch.randint(61, (8, 10), generator=torch.Generator().manual_seed(seed))
        mask = torch.zeros_like(ids)
        mask[0, -2:] = 1
        optimizer.zero_grad()
        losses.append(float(train_step(model, ids, mask).reduce_mean()))
        optimizer.step()
    return losses, model.state_dict(), len(list(model.distributed_modules())), type(plain.own).__name__
