"""Small models without dropout and their batches, with the way in which a step function calls each."""

import os

import torch
import torch.nn.functional as F
import transformers  # 4.26 has no Llama and no Falcon
from torch import nn
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BloomConfig,
    BloomForCausalLM,
    DistilBertConfig,
    DistilBertForQuestionAnswering,
    GPT2Config,
    GPT2LMHeadModel,
    GPTJConfig,
    GPTJForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    RobertaConfig,
    RobertaForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

LAYERS = {"num_hidden_layers": 6, "intermediate_size": 61}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(20, 48)
        self.blocks = nn.Sequential(*[nn.Sequential(nn.Linear(48, 48), nn.ReLU(inplace=True)) for _ in range(6)])
        self.norm, self.out = nn.LayerNorm(48), nn.Linear(48, 5)

    def forward(self, x):
        return F.log_softmax(self.out(self.norm(self.blocks(self.a(x)) + 1)), 1)


class Skips(nn.Module):
    """Every block gets results of earlier blocks in a dict and changes a tensor of another rank in place."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList(nn.Linear(20, 20) for _ in range(4))
        self.up = nn.ModuleList(nn.Bilinear(20, 20, 20) for _ in range(4))
        self.head = nn.ModuleDict({"wide": nn.Linear(20, 5), "narrow": nn.Linear(20, 5)})

    def forward(self, x):
        kept = {}
        for place, layer in enumerate(self.down):
            x = torch.tanh(layer(x)) if place % 2 else layer(x)
            kept[place] = x
        for place, layer in enumerate(self.up):
            x = layer(x, kept[3 - place])
            x += kept[0]
            x = x * 0.3
        return {"wide": self.head["wide"](x), "narrow": [self.head["narrow"](x), x.detach()]}


class Several(nn.Module):
    """A block that takes and returns several tensors in containers."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(20, 20), nn.Linear(20, 20)

    def forward(self, state, *, scale):
        left, right = state["left"], state["right"][0]
        return {"left": torch.tanh(self.one(left + right)), "right": (self.other(right) * scale, scale)}


class Dicts(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Several() for _ in range(6))
        self.head = nn.Linear(20, 5)

    def forward(self, x):
        state = {"left": x, "right": (x, 1.0)}
        for block in self.blocks:
            state = block(state, scale=0.9)
        return self.head(state["left"] + state["right"][0])


def heads_of(heads):
    """The sizes of a model with this many attention heads of 8 features."""
    return {"hidden_size": 8 * heads, "num_attention_heads": heads}


def bert(heads=4):
    config = BertConfig(**heads_of(heads), **LAYERS, **NO_DROPOUT, vocab_size=99, max_position_embeddings=64)
    return BertForQuestionAnswering(config)


def roberta(heads=4):
    config = RobertaConfig(**heads_of(heads), **LAYERS, **NO_DROPOUT, vocab_size=99, max_position_embeddings=66)
    config.num_labels = 3
    return RobertaForSequenceClassification(config)


def vit(heads=4):
    config = ViTConfig(**heads_of(heads), **LAYERS, **NO_DROPOUT, image_size=32, patch_size=8, num_labels=5)
    return ViTForImageClassification(config)


def gpt2(heads=4):
    config = GPT2Config(vocab_size=97, n_embd=8 * heads, n_layer=4, n_head=heads, n_positions=64, use_cache=False)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    return GPT2LMHeadModel(config)


def gptj(heads=4):
    sizes = {"vocab_size": 97, "n_embd": 8 * heads, "n_layer": 4, "n_head": heads, "n_positions": 64, "rotary_dim": 4}
    return GPTJForCausalLM(GPTJConfig(**sizes, use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))


def neox(heads=4):
    config = GPTNeoXConfig(**heads_of(heads), **LAYERS, vocab_size=97, max_position_embeddings=64, use_cache=False)
    return GPTNeoXForCausalLM(config)


def llama(heads=4):
    sizes = {"vocab_size": 97, "max_position_embeddings": 64, "num_key_value_heads": heads // 2}
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**heads_of(heads), **LAYERS, **sizes, use_cache=False)
    )


def bloom(heads=4):
    sizes = {"vocab_size": 97, "hidden_size": 8 * heads, "n_layer": 4, "n_head": heads}
    return BloomForCausalLM(BloomConfig(**sizes, use_cache=False))


def falcon(heads=4, **kind):
    kind = kind or {"new_decoder_architecture": True, "num_kv_heads": max(heads // 2, 1)}
    sizes = {"vocab_size": 97, "num_hidden_layers": 4, "ffn_hidden_size": 61}
    return transformers.FalconForCausalLM(
        transformers.FalconConfig(**heads_of(heads), **sizes, **kind, use_cache=False)
    )


def falcon_of_7b(heads=4):
    """All heads share one key and value."""
    return falcon(heads, multi_query=True)


def falcon_of_rw(heads=4):
    """Each head has its key and value, and its position biases are in the attention mask."""
    return falcon(heads, multi_query=False, alibi=True)


def t5(heads=4):
    """As flan-t5: a gated MLP, and a head with its own weight, which the configuration of transformers 5 forgets."""
    sizes = {"vocab_size": 97, "d_model": 8 * heads, "d_kv": 8, "d_ff": 61, "num_layers": 3, "num_heads": heads}
    config = T5Config(**sizes, feed_forward_proj="gated-gelu", dropout_rate=0.0, use_cache=False)
    config.tie_word_embeddings, config.decoder_start_token_id = False, 0
    return T5ForConditionalGeneration(config)


def distilbert(heads=4):
    sizes = {"vocab_size": 99, "dim": 8 * heads, "hidden_dim": 61, "n_layers": 4, "n_heads": heads}
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0, "qa_dropout": 0.0}
    return DistilBertForQuestionAnswering(DistilBertConfig(**sizes, **no_dropout, max_position_embeddings=64))


MINILM = "BERTH_MINILM"
"""A variable with a folder of MiniLM's weights; without it they are random."""


def minilm():
    """MiniLM with the part of its vocabulary that the batches use."""
    folder = os.environ.get(MINILM)
    shape = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    made = BertForQuestionAnswering.from_pretrained(folder, **NO_DROPOUT) if folder else None
    made = made or BertForQuestionAnswering(BertConfig(**shape, **NO_DROPOUT))
    made.resize_token_embeddings(104)
    return made


BUILD = {
    "mlp": MLP,
    "skips": Skips,
    "dicts": Dicts,
    "minilm": minilm,
}
WITH_HEADS = {
    "bert": bert,
    "roberta": roberta,
    "vit": vit,
    "gpt2": gpt2,
    "gptj": gptj,
    "neox": neox,
    "llama": llama,
    "bloom": bloom,
    "falcon": falcon,
    "falcon_of_7b": falcon_of_7b,
    "falcon_of_rw": falcon_of_rw,
    "t5": t5,
    "distilbert": distilbert,
}
"""Models that have four attention heads, or as many as their kind says: bert-3."""

LANGUAGE_MODELS = {"gpt2", "gptj", "neox", "llama", "bloom", "falcon", "falcon_of_7b", "falcon_of_rw", "t5"}


DEVICE = "cuda" if torch.cuda.device_count() else "cpu"
"""Ranks that have no GPU of their own share one."""


def build(kind):
    """kind: a name in BUILD or WITH_HEADS, or an object whose `build` returns a module like that of "dicts"."""
    torch.manual_seed(0)
    if not isinstance(kind, str):
        built = kind.build()
    elif kind in BUILD:
        built = BUILD[kind]()
    else:
        name, _, heads = kind.partition("-")
        built = WITH_HEADS[name](int(heads or 4))
    return built.train().to(DEVICE)


def name_of(kind):
    """A kind without its number of heads."""
    return kind.partition("-")[0] if isinstance(kind, str) else "dicts"


def batch(kind, seed, size):
    """Tensors of a batch; the length changes from step to step."""
    return tuple(tensor.to(DEVICE) for tensor in batch_on_cpu(kind, seed, size))


def batch_on_cpu(kind, seed, size):
    """The same numbers on every device."""
    random, kind = torch.Generator().manual_seed(seed), name_of(kind)
    if kind in ("mlp", "skips", "dicts"):
        return torch.randn(size, 20, generator=random), torch.randint(0, 5, (size,), generator=random)
    if kind == "vit":
        return torch.randn(size, 3, 32, 32, generator=random), torch.randint(0, 5, (size,), generator=random)
    length = 8 + 4 * (seed % 3)
    ids = torch.randint(5, 97, (size, length), generator=random)
    mask = torch.ones_like(ids)
    for row in range(size):
        mask[row, length - row % 4 :] = 0
    if kind in LANGUAGE_MODELS:
        return ids, mask
    if kind == "roberta":
        return ids, mask, torch.randint(0, 3, (size,), generator=random)
    return ids, mask, *torch.randint(0, length // 2, (2, size), generator=random)


def call(kind, model, tensors):
    """Output and loss; some models compute the loss themselves."""
    kind = name_of(kind)
    if kind == "mlp":
        output = model(tensors[0])
        return output, F.nll_loss(output, tensors[1])
    if kind == "skips":
        output = model(tensors[0])
        loss = F.cross_entropy(output["wide"], tensors[1]) + F.cross_entropy(output["narrow"][0], tensors[1])
        return output, loss + output["narrow"][1].mean()
    if kind == "dicts":
        output = model(tensors[0])
        return output, F.cross_entropy(output, tensors[1])
    if kind == "vit":
        output = model(pixel_values=tensors[0]).logits
        return output, F.cross_entropy(output, tensors[1])
    if kind in LANGUAGE_MODELS:
        result = model(input_ids=tensors[0], attention_mask=tensors[1], labels=tensors[0])
    elif kind == "roberta":
        result = model(input_ids=tensors[0], attention_mask=tensors[1], labels=tensors[2])
    else:
        result = model(
            input_ids=tensors[0], attention_mask=tensors[1], start_positions=tensors[2], end_positions=tensors[3]
        )
        return result.start_logits, result.loss
    return result.logits, result.loss
