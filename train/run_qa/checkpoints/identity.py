"""Digests of a training's model and data. A job resumes only from checkpoints with the same digests.

model      the architecture: class and configuration, without settings that may change between two runs (dropout)
weights    the loaded weights that the training starts from: two models may have the same architecture
data       every window with its labels, in order (so max_seq_length and doc_stride count, too), and the settings that
           decide their order in an epoch: train_sampling_strategy, seed and dataloader_drop_last
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from berth.contract.model_files import NULL_THRESHOLD
from berth.runtime.rank import Rank
from berth.train.run_qa.inputs.features import WindowDataset
from berth.train.run_qa.model import DROPOUTS, Loaded
from berth.train.run_qa.ranks import from_leader

_VOLATILE = {"transformers_version", "dtype", "torch_dtype", "architectures", NULL_THRESHOLD}
_VOLATILE.update(name for names in DROPOUTS.values() for name in names)
DIFFERENCES = {
    "model": ("another model", "pass the model that it was written with"),
    "weights": ("a model of other weights", "pass the model that it was written with"),
    "data": (
        "other training data, or another tokenizer, max_seq_length, doc_stride, seed or train_sampling_strategy",
        "pass those that it was written with",
    ),
}
"""For each digest: what differs if it differs, and what to do."""


def digest_config(config: Any) -> str:
    """Digest the settings that differ from the class's defaults: a later transformers may have more defaults."""
    settings = {name: value for name, value in config.to_diff_dict().items() if name not in _VOLATILE}
    kept = {name: value for name, value in settings.items() if not name.startswith("_")}
    return _digest([type(config).__name__, kept])


def digest_weights(model: torch.nn.Module, fresh: Collection[str]) -> str:
    """Digest the loaded weights, independent of their names and order. The `fresh` parts of the model are left out:
    their random weights follow from the seed.
    """
    loaded = (weight for name, weight in model.named_parameters() if name.partition(".")[0] not in fresh)
    numbers = (weight.detach().cpu().reshape(-1).view(torch.uint8).numpy().data for weight in loaded)
    return _digest(sorted(hashlib.sha256(data).hexdigest() for data in numbers))


def digest_windows(dataset: WindowDataset, order: Sequence[Any]) -> str:
    """Digest the windows with their labels, and `order`: the settings that decide their order in an epoch."""
    digest = hashlib.sha256(json.dumps(list(order)).encode())
    for index in range(len(dataset)):
        window = dataset[index]
        digest.update(window["input_ids"].tobytes())
        digest.update(repr((window.get("start_positions"), window.get("end_positions"))).encode())
    return digest.hexdigest()


def digest_training(loaded: Loaded, dataset: WindowDataset, order: Sequence[Any], rank: Rank) -> dict[str, str]:
    """All digests of a training; all ranks must call it."""
    mine = [digest_weights(loaded.model, loaded.fresh), digest_windows(dataset, order)] if rank.leads else []
    weights, data = from_leader(mine, rank)
    return {"model": digest_config(loaded.model.config), "weights": weights, "data": data}


def difference(one: Mapping[str, str], other: Mapping[str, str]) -> str:
    """The first of model, weights and data that differs between two trainings; empty if none does."""
    return next((name for name in DIFFERENCES if one.get(name) != other.get(name)), "")


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
