"""What a training is of: digests of its model and its data. A checkpoint of another one is not its own.

model      the architecture: class and configuration, not what may change between two runs (dropout)
weights    those that the training starts from, as they were loaded: two models of one architecture are two models
data       every window with its labels, in order (so max_seq_length and doc_stride as well), and by which order an
           epoch takes them: train_sampling_strategy and seed
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
WORDS = {
    "model": ("another model", "pass the model that it was written with"),
    "weights": ("a model of other weights", "pass the model that it was written with"),
    "data": (
        "other training data, or another tokenizer, max_seq_length, doc_stride, seed or train_sampling_strategy",
        "pass those that it was written with",
    ),
}
"""Of each digest, what differs with it and what to do."""


def of_model(config: Any) -> str:
    """Of a configuration, what differs from the defaults of its class: a later transformers may have more of those."""
    settings = {name: value for name, value in config.to_diff_dict().items() if name not in _VOLATILE}
    kept = {name: value for name, value in settings.items() if not name.startswith("_")}
    return _digest([type(config).__name__, kept])


def of_weights(model: torch.nn.Module, fresh: Collection[str]) -> str:
    """Of what was loaded, whatever its names and order; the parts of the model that start from random weights are
    `fresh`, and follow from the seed.
    """
    loaded = (weight for name, weight in model.named_parameters() if name.partition(".")[0] not in fresh)
    numbers = (weight.detach().cpu().reshape(-1).view(torch.uint8).numpy().data for weight in loaded)
    return _digest(sorted(hashlib.sha256(each).hexdigest() for each in numbers))


def of_windows(dataset: WindowDataset, order: Sequence[Any]) -> str:
    """Of windows and labels, and of `order`: what else decides when a window comes."""
    digest = hashlib.sha256(json.dumps(list(order)).encode())
    for index in range(len(dataset)):
        window = dataset[index]
        digest.update(window["input_ids"].tobytes())
        digest.update(repr((window.get("start_positions"), window.get("end_positions"))).encode())
    return digest.hexdigest()


def of_training(loaded: Loaded, dataset: WindowDataset, order: Sequence[Any], rank: Rank) -> dict[str, str]:
    """The digests; all ranks must call it."""
    mine = [of_weights(loaded.model, loaded.fresh), of_windows(dataset, order)] if rank.leads else []
    weights, data = from_leader(mine, rank)
    return {"model": of_model(loaded.model.config), "weights": weights, "data": data}


def difference(one: Mapping[str, str], other: Mapping[str, str]) -> str:
    """The first of model, weights and data in which two trainings differ; empty if they do not."""
    return next((name for name in WORDS if one.get(name) != other.get(name)), "")


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
