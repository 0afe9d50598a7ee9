"""Whether the server can answer questions with the model in a folder, checked on the user's machine and in the images.

It reads only file names and config.json; the image also checks the weights (berth.runtime.engines.pytorch).
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from berth.contract.model_files import CONFIG, NULL_THRESHOLD, file_faults, model_home
from berth.contract.other_models import HANDLER, adapter_fault, is_embedder

_NO_SEPARATOR = "has no separator between question and context"
_PAGES = "needs the positions of words on a page, and a question and its context have none"
UNUSABLE = {
    "xlnet": "puts [CLS] at the end of its input, but the first token must stand for no answer",
    "fnet": "takes no attention mask, so its answers would change with the padding of a batch",
    "lxmert": "needs pictures as well",
    **dict.fromkeys(("gpt2", "gpt_neo", "gpt_neox", "gptj", "bloom", "falcon", "mpt"), _NO_SEPARATOR),
    **dict.fromkeys(("layoutlm", "layoutlmv2", "layoutlmv3", "lilt", "markuplm"), _PAGES),
}
"""`model_type` → why berth can't use this architecture, although transformers has it for question answering."""
OTHER_ARCHITECTURE = "use a model such as BERT, RoBERTa, DeBERTa or ModernBERT"

_PRETRAINED = ("Model", "ForPreTraining", "ForMaskedLM")
"""Suffixes of classes without a head or with a pretraining head, which can be fine-tuned."""


def architectures(config: Mapping[str, Any]) -> list[str]:
    """The model's classes, such as BertForSequenceClassification; empty if the config does not name any."""
    names = config.get("architectures")
    return [str(name) for name in names] if isinstance(names, list) else []


def has_other_head(config: Mapping[str, Any]) -> bool:
    """Whether the config names classes and none of them is for question answering."""
    names = architectures(config)
    return bool(names) and not any("QuestionAnswering" in name for name in names)


def other_head(config: Mapping[str, Any], *, embedder: bool = False) -> str:
    """The error if the model has no head for question answering: what it is and what to do; empty if it may have one.

    embedder: whether sentence-transformers saved it.
    """
    if not has_other_head(config):
        return ""
    names = architectures(config)
    what = f"a {' and '.join(names)}" + (" of sentence-transformers, which makes embeddings" if embedder else "")
    fine_tune = ", or fine-tune it with run_qa" if names[0].endswith(_PRETRAINED) and not embedder else ""
    return f"this is {what}, and the image answers questions: {HANDLER}{fine_tune}"


def unusable(config: Mapping[str, Any]) -> str:
    """The error if berth can't use this architecture: the reason and what to do; empty if it may."""
    kind = config.get("model_type")
    reason = UNUSABLE.get(kind) if isinstance(kind, str) else None
    return f"this is a model of type {kind}, which {reason}: {OTHER_ARCHITECTURE}" if reason else ""


def serving_faults(folder: Path, label: str | Path) -> list[str]:
    """Why the model in `folder` can't answer questions: sentences without full stop, with what to do; empty if it may.

    label: the folder's name in the sentences.
    """
    faults = file_faults(folder, label)
    home = model_home(folder)
    if home is None:
        return faults
    home_label = Path(label) / home.relative_to(folder)
    config, reason = read_config(home)
    if reason:
        return [f"{home_label / CONFIG} {reason}", *faults]
    head = other_head(config, embedder=is_embedder(home)) or unusable(config)
    adapter = adapter_fault(home)
    return [*([f"{home_label}: {head}"] if head else []), *([f"{home_label} {adapter}"] if adapter else []), *faults]


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
