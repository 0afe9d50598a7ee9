"""Finding a model: which folder under /opt/ml/model holds it, and whether it is complete.

A look at file names and config.json only, so that what can't be served is named in milliseconds, before torch is
imported. SageMaker unpacks `model.tar.gz` into /opt/ml/model; archives made by hand often hold one folder more, and
local mode leaves the archive itself next to its contents. Both are accepted.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from berth.contract.model_files import NULL_THRESHOLD, TOKENIZERS, WEIGHTS, first_file, model_home
from berth.contract.served_model import read_config, serving_faults


class ModelFilesError(Exception):
    """The model can't be served; one sentence says what is wrong with which folder and what to do."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A folder that holds a complete model: configuration, weights and tokenizer."""

    folder: Path
    weights: str  # the file that was found, for the log
    tokenizer: str
    null_threshold: float = 0.0  # see contract's NULL_THRESHOLD


def find(model_dir: Path) -> ModelFiles:
    """The model in `model_dir`, or in the one folder inside it; ModelFilesError says all that is missing."""
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
