"""A model with random weights and some questions, with which run_qa trains tens of steps in seconds."""

import json
import shutil
from pathlib import Path
from typing import Any

from bench import squad
from berth.local.demo import pretrained_model

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json")
STEPS, SAVE_EVERY = 30, 3
RANKS_PER_HOST = 2


def excerpt(name: str, questions: int) -> dict[str, Any]:
    """The first paragraphs of the excerpt's `train` or `heldout` that have at least `questions` questions."""
    kept: list[dict[str, Any]] = []
    count = 0
    for article in squad.read_articles(squad.excerpt_file(name)):
        for paragraph in article["paragraphs"]:
            if count < questions:
                kept.append({"title": article["title"], "paragraphs": [paragraph]})
                count += len(paragraph["qas"])
    return {"version": "1.1", "data": kept}


def write_model(
    folder: Path, pretrained: Path, layers: int = 1, hidden: int = 32, heads: int = 2, inner: int = 64
) -> Path:
    """A BERT with random weights and the tokenizer of `pretrained`. By default its checkpoints have 12 MB."""
    import torch
    from transformers import BertConfig, BertForQuestionAnswering

    torch.manual_seed(0)
    config = BertConfig.from_pretrained(
        pretrained,
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=inner,
    )
    BertForQuestionAnswering(config).save_pretrained(folder)
    for name in TOKENIZER_FILES:
        shutil.copy(pretrained / name, folder / name)
    return folder


def write_channels(folder: Path) -> dict[str, Path]:
    """The channels of the small job: its questions and its model."""
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "train.json").write_text(json.dumps(excerpt("train", 120)))
    return {"train": folder / "train", "model": write_model(folder / "model", pretrained_model())}


def hyperparameters() -> dict[str, str]:
    """STEPS steps over more than one epoch, with a checkpoint every SAVE_EVERY steps."""
    return {
        "do_train": "True",
        "max_steps": str(STEPS),
        "save_strategy": "steps",
        "save_steps": str(SAVE_EVERY),
        "save_total_limit": "2",
        "log_seconds": "0",
        # BERT's own value: with a smaller one, rounding errors of gradients that should be 0 become whole steps.
        "adam_epsilon": "1e-6",
        "per_device_train_batch_size": "2",
        "max_seq_length": "128",
        "doc_stride": "32",
        "export_openvino": "False",
        "processes_per_host": str(RANKS_PER_HOST),
    }
