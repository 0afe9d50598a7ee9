"""Finds the folder under /opt/ml/model that holds the model, and checks whether the model is complete.

It reads only file names and config.json, so that an error is reported within milliseconds, before torch is imported.
SageMaker unpacks `model.tar.gz` into /opt/ml/model; archives made by hand often have one more level of folders, and
local mode leaves the archive next to its contents. Both are accepted.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from berth.contract.model_files import NULL_THRESHOLD, TOKENIZERS, WEIGHTS, first_file, model_home
from berth.contract.served_model import read_config, serving_faults


class ModelFilesError(Exception):
    """The model can't be served; the text is one sentence with the folder, the fault and what to do."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A folder that holds a complete model: configuration, weights and tokenizer."""

    folder: Path
    weights: str  # the file's name, for the log
    tokenizer: str
    null_threshold: float = 0.0  # see contract's NULL_THRESHOLD


def find(model_dir: Path) -> ModelFiles:
    """The model in `model_dir`, or in the one folder inside it; ModelFilesError with all faults."""
    faults = serving_faults(model_dir, model_dir)
    folder = model_home(model_dir) or model_dir
    weights, tokenizer = first_file(folder, WEIGHTS), first_file(folder, TOKENIZERS)
    faults += [
        f"{folder / name} can't be read by this container's user ({os.getuid()}): give it the right to"
        for name in (weights, tokenizer)
        if name and not os.access(folder / name, os.R_OK)
    ]
    if weights is None or tokenizer is None or faults:
        raise ModelFilesError("; ".join(faults))
    config, _ = read_config(folder)
    return ModelFiles(folder, weights, tokenizer, float(config.get(NULL_THRESHOLD) or 0.0))
