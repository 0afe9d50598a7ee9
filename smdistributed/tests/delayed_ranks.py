"""Runs in each rank of a launch: a model that is created with delayed values, next to the same one without."""

import gc

import smdistributed.modelparallel.torch as smp
import torch
from new_start import start
from rank_memory import growth
from transformers import BertConfig, BertForQuestionAnswering

HIDDEN, LAYERS, WORDS = 768, 8, 4000
CONFIG = BertConfig(
    hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=12, intermediate_size=4 * HIDDEN, vocab_size=WORDS
)
OVERHEAD = 30e6


@smp.step
def forward_step(model, ids):
    return model(ids).start_logits


def created(options, *, delay):
    """The growth of memory while the model is created and split, and the model."""
    start({"ddp": True, **options})
    torch.manual_seed(7 + smp.rank())
    kept = []

    def create():
        with smp.tensor_parallelism(distribute_embedding=True), smp.delay_param_initialization(enabled=delay):
            plain = BertForQuestionAnswering(CONFIG)
        kept.append(smp.DistributedModel(plain))
        if smp.pp_size() > 1:
            with torch.no_grad():
                forward_step(kept[0], torch.zeros(2, 4, dtype=torch.long))

    return growth(create), kept[0]


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def compared(options):
    """Peak, its limit, the peak without delays, the model's bytes, and whether all values are equal."""
    peak, model = created(options, delay=True)
    own = sum(local(each).nbytes for each in model.local_parameters())
    layer = sum(each.nbytes for each in BertForQuestionAnswering(CONFIG).bert.encoder.layer[0].parameters())
    states = model.state_dict()
    whole = sum(each.nbytes for each in states.values())
    del model
    gc.collect()
    peak_without, model = created(options, delay=False)
    same = all(torch.equal(each, states[name]) for name, each in model.state_dict().items())
    return peak, own + layer + OVERHEAD, peak_without, whole, same
