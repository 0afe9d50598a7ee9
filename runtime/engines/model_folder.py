"""Finding a model: which folder under /opt/ml/model holds it, and whether it is complete.

A look at file names only, so that an incomplete model is named in milliseconds, before torch is imported. SageMaker
unpacks `model.tar.gz` into /opt/ml/model; archives made by hand often hold one folder more, and local mode leaves the
archive itself lying next to its contents. Both are accepted.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from berth.contract.model_config import cannot_answer
from berth.contract.model_files import CONFIG, NULL_THRESHOLD, TOKENIZERS, WEIGHTS, first_file, model_homes


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
    folder = _model_folder(model_dir)
    weights, tokenizer = first_file(folder, WEIGHTS), first_file(folder, TOKENIZERS)
    config, faults = _read_config(folder / CONFIG)
    if weights is None:
        faults.append(
            f"{folder} has no weights (`{WEIGHTS[0]}` or `{WEIGHTS[2]}`): save the model next to its {CONFIG}"
        )
    if tokenizer is None:
        faults.append(f"{folder} has no tokenizer (`{TOKENIZERS[0]}` or `{TOKENIZERS[1]}`): save it next to the model")
    faults += [
        f"{folder / name} can't be read by this container's user ({os.getuid()}): give it the right to"
        for name in (weights, tokenizer)
        if name and not os.access(folder / name, os.R_OK)
    ]
    if weights is None or tokenizer is None or faults:
        raise ModelFilesError("; ".join(faults))
    return ModelFiles(folder, weights, tokenizer, float(config.get(NULL_THRESHOLD) or 0.0))


def _read_config(path: Path) -> tuple[Mapping[str, Any], list[str]]:
    """What is in a config.json, and what is wrong with it."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return {}, [f"{path} can't be read ({error}): save the model again"]
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        return {}, [f"{path} names no `model_type`: save the model with `save_pretrained`"]
    if fault := cannot_answer(config):
        return config, [f"{path.parent}: {fault}"]
    threshold = config.get(NULL_THRESHOLD)
    if threshold is None or (type(threshold) in (int, float) and math.isfinite(threshold)):
        return config, []
    return config, [f"{path} has `{NULL_THRESHOLD}`: {json.dumps(threshold)}: it must be a number, such as 0.0"]


def _model_folder(model_dir: Path) -> Path:
    if not model_dir.is_dir():
        raise ModelFilesError(f"{model_dir} does not exist: mount or unpack the model there")
    homes = model_homes(model_dir)
    if len(homes) == 1:
        return homes[0]
    if homes:
        names = ", ".join(path.name for path in homes)
        raise ModelFilesError(f"{model_dir} holds several models ({names}): put one of them there")
    archive = next(iter(sorted(model_dir.glob("*.tar.gz"))), None)
    if archive is not None:
        raise ModelFilesError(f"{model_dir} holds {archive.name} but no {CONFIG}: unpack the archive there")
    raise ModelFilesError(f"{model_dir} has no {CONFIG}, nor has a folder in it: put the files of one model there")
