"""Whether the server can answer questions with the model in a folder, checked on the user's machine and in the image.

It reads only file names and config.json; the image also checks the weights (berth.runtime.engines.pytorch).
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from berth.contract.model_config import other_head, unusable
from berth.contract.model_files import CONFIG, NULL_THRESHOLD, file_faults, model_home
from berth.contract.other_models import adapter_fault, is_embedder


def serving_faults(folder: Path, named: str | Path) -> list[str]:
    """Why the model in `folder` can't answer questions: sentences without full stop, with what to do; empty if it may.

    named: the folder's name in the sentences.
    """
    faults = file_faults(folder, named)
    home = model_home(folder)
    if home is None:
        return faults
    called = Path(named) / home.relative_to(folder)
    config, reason = read_config(home)
    if reason:
        return [f"{called / CONFIG} {reason}", *faults]
    head = other_head(config, embedder=is_embedder(home)) or unusable(config)
    adapter = adapter_fault(home)
    return [*([f"{called}: {head}"] if head else []), *([f"{called} {adapter}"] if adapter else []), *faults]


def read_config(home: Path) -> tuple[Mapping[str, Any], str]:
    """The config.json in `home`, and its error, a sentence after the file's name; empty if it is valid."""
    try:
        config = json.loads((home / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return {}, f"can't be read ({getattr(error, 'strerror', None) or error}): save the model again"
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        return {}, "names no `model_type`: save the model with `save_pretrained`"
    threshold = config.get(NULL_THRESHOLD)
    if threshold is None or (type(threshold) in (int, float) and math.isfinite(threshold)):
        return config, ""
    return config, f"has `{NULL_THRESHOLD}`: {json.dumps(threshold)}: it must be a number, such as 0.0"
