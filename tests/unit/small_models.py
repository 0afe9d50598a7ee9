"""Models for the tests of engines and the server: a tiny BERT with random weights, and MiniLM with a random head."""

import string
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoModelForQuestionAnswering, BertConfig, BertForQuestionAnswering, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from berth.local.demo import pretrained_model
from berth.runtime.engines import convert
from berth.runtime.engines.graph import FOLDER
from berth.runtime.engines.model_folder import find

transformers_logging.disable_progress_bar()
transformers_logging.set_verbosity_error()


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """BERT's tokenizer over single characters: a letter is a token, so short texts make long inputs."""
    characters = string.ascii_lowercase + string.digits + string.punctuation
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *characters, *(f"##{character}" for character in characters)]
    tokenizer = Tokenizer(models.WordPiece({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=128,
    )


def save_tiny_model(folder: Path, seed: int = 0) -> None:
    """Save a model as training does. It has windows of at most 128 tokens, and loads in milliseconds."""
    tokenizer = tiny_tokenizer()
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        initializer_range=0.3,
    )
    BertForQuestionAnswering(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def add_graph(folder: Path) -> None:
    """Add the model's graph to its folder, so that a worker is ready in half a second."""
    convert.convert(find(folder), folder / FOLDER)


def save_seeded_minilm(folder: Path) -> None:
    """Save MiniLM with a head from NumPy's seeded generator. Its answers are senseless, but their scores reach 1."""
    save_minilm(folder)
    path = folder / "model.safetensors"
    weights = load_file(path)
    head = weights["qa_outputs.weight"]
    seeded = np.random.default_rng(0).normal(0, 1.5, head.shape)
    weights |= {"qa_outputs.weight": torch.tensor(seeded, dtype=head.dtype), "qa_outputs.bias": torch.zeros(2)}
    save_file(weights, path, {"format": "pt"})


def save_minilm(folder: Path) -> None:
    """Save the demo's pretrained MiniLM with a random head: real tokenizer and encoder, senseless answers."""
    source = pretrained_model()
    torch.manual_seed(0)
    AutoModelForQuestionAnswering.from_pretrained(source).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        (folder / name).write_bytes((source / name).read_bytes())
