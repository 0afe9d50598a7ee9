"""A model with random weights and some questions, on which run_qa trains some tens of steps in seconds."""

import json
import lzma
import shutil
from pathlib import Path
from typing import Any

from berth.images.pins import pins
from berth.local.demo import pretrained_model

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json")
STEPS, SAVE_EVERY = 30, 3
RANKS_OF_A_HOST = 2


def excerpt(name: str, questions: int) -> dict[str, Any]:
    """The first paragraphs of the embedded sample's `train` or `heldout`, with so many questions or a few more."""
    with lzma.open(pins.ROOT / "sample" / f"squad-{name}.json.xz", "rt", encoding="utf-8") as file:
        data = json.load(file)
    kept: list[dict[str, Any]] = []
    found = 0
    for article in data["data"]:
        for paragraph in article["paragraphs"]:
            if found >= questions:
                return {"version": data["version"], "data": kept}
            kept.append({"title": article["title"], "paragraphs": [paragraph]})
            found += len(paragraph["qas"])
    return {"version": data["version"], "data": kept}


def write_model(folder: Path, pretrained: Path) -> Path:
    """A BERT of one small layer with random weights and the tokenizer of `pretrained`; its checkpoints have 12 MB."""
    import torch
    from transformers import BertConfig, BertForQuestionAnswering

    torch.manual_seed(0)
    config = BertConfig.from_pretrained(
        pretrained, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
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
    """STEPS steps with a checkpoint at every SAVE_EVERY of them, which goes over more than one epoch."""
    return {
        "do_train": "True",
        "max_steps": str(STEPS),
        "save_strategy": "steps",
        "save_steps": str(SAVE_EVERY),
        "save_total_limit": "2",
        "log_seconds": "0",
        # As BERT was trained: a smaller one makes whole steps of the rounding of gradients that are 0.
        "adam_epsilon": "1e-6",
        "per_device_train_batch_size": "2",
        "max_seq_length": "128",
        "doc_stride": "32",
        "export_openvino": "False",
        "processes_per_host": str(RANKS_OF_A_HOST),
    }
