"""What a model's config.json says against question answering, before its weights are loaded; for both images."""

from collections.abc import Mapping
from typing import Any

_NO_SEPARATOR = "has no separator between question and context"
_PAGES = "reads the places of words on a page, and a question and its context have none"
UNUSABLE = {
    "xlnet": "puts [CLS] at the end of its input, and the first token has to stand for no answer",
    "fnet": "takes no attention mask, so its answers would change with the padding of a batch",
    "lxmert": "reads pictures as well",
    **dict.fromkeys(("gpt2", "gpt_neo", "gpt_neox", "gptj", "bloom", "falcon", "mpt"), _NO_SEPARATOR),
    **dict.fromkeys(("layoutlm", "layoutlmv2", "layoutlmv3", "lilt", "markuplm"), _PAGES),
}
"""Architectures that transformers has for question answering and the kit can't use, by `model_type`: the reason."""
OTHER_ARCHITECTURE = "use a model such as BERT, RoBERTa, DeBERTa or ModernBERT"


def architecture(config: Mapping[str, Any]) -> str:
    """The class that saved the model, such as BertForSequenceClassification; empty if the config does not say."""
    names = config.get("architectures")
    return str(names[0]) if isinstance(names, list) and names else ""


def has_other_head(config: Mapping[str, Any]) -> bool:
    """Whether the model was saved without a head for question answering, as far as the config says."""
    name = architecture(config)
    return bool(name) and "QuestionAnswering" not in name


def unusable(config: Mapping[str, Any]) -> str:
    """Why no model of this architecture can be used, with what to do; empty if it may be."""
    kind = config.get("model_type")
    reason = UNUSABLE.get(kind) if isinstance(kind, str) else None
    return f"this is a model of type {kind}, which {reason}: {OTHER_ARCHITECTURE}" if reason else ""


def cannot_answer(config: Mapping[str, Any]) -> str:
    """Why the model can't answer questions as it is, with what to do; empty if it may."""
    if has_other_head(config):
        return (
            f"this is a {architecture(config)}, and the image answers questions: give it a code/inference.py, or "
            "fine-tune it for question answering first"
        )
    return unusable(config)
