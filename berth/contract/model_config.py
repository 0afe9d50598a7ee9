"""Reasons in config.json why a model can't answer questions, checked before its weights are loaded; for both images."""

from collections.abc import Mapping
from typing import Any

from berth.contract.other_models import HANDLER

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
