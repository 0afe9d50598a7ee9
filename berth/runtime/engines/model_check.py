"""Checks a loaded model and its tokenizer, in both images: before a job reads data, and before a server is ready.

Without this check, these faults would end a job at its first step, or give wrong answers without an error.
"""

import inspect
import re
from collections.abc import Iterator
from typing import Any

from berth.contract.served_model import OTHER_ARCHITECTURE
from berth.qa.tokenizer import PairTokenizer
from berth.qa.windows import position_count
from berth.runtime.software import is_installed
from berth.runtime.subprocesses import one_line

_PAIR = ("who?", "they do")
_NEEDED = ("sentencepiece", "google.protobuf")
"""What transformers needs to read a SentencePiece model. Without them its error names tiktoken, which does not help."""
_REASON_CHARACTERS = 240


def takes_token_types(model: Any) -> bool:
    """Whether a transformers model uses token_type_ids.

    Its tokenizer's `model_input_names` does not show this: for ALBERT, RemBERT and others they are missing there.
    """
    if "token_type_ids" not in inspect.signature(model.forward).parameters:
        return False
    # Funnel has no embedding of types; it compares the types of two tokens.
    return _type_count(model) > 1 or model.config.model_type == "funnel"


def _type_count(model: Any) -> int:
    """Rows of the embedding of token types; 0 if there is none, as in GPT-2, which embeds types as words."""
    return getattr(model.config, "type_vocab_size", None) or 0


def tokenizer_fault(error: BaseException) -> str:
    """Why transformers could not load a tokenizer, for the brackets of a sentence."""
    missing = [library.removeprefix("google.") for library in _NEEDED if not is_installed(library)]
    if not missing or not re.search("tiktoken|sentencepiece|protobuf", str(error), re.IGNORECASE):
        return reason_of(error)
    return (
        f"it has no tokenizer.json, and to make one needs {' and '.join(missing)}, which this image does not have; "
        "make it where they are installed: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
    )


def fault_of(model: Any, tokenizer: PairTokenizer) -> str:
    """All reasons why this model and tokenizer can't answer questions, with what to do; empty if they can.

    `model`: a transformers model on the CPU, in evaluation mode.
    """
    return "; ".join(_faults(model, tokenizer)) or _fault_of_a_forward(model, tokenizer)


def _faults(model: Any, tokenizer: PairTokenizer) -> Iterator[str]:
    outputs = model.config.num_labels
    if outputs != 2:
        yield (
            f"its head has {outputs} outputs instead of 2 (start and end of an answer): fine-tune a model whose "
            "config has num_labels 2"
        )
    yield from _faults_of_ids(model, tokenizer)
    positions = position_count(model)
    if positions is not None and positions < 1:
        yield f"its config gives it {positions} positions: {OTHER_ARCHITECTURE}"
    yield from _faults_of_pairs(model, tokenizer)


def _faults_of_ids(model: Any, tokenizer: PairTokenizer) -> Iterator[str]:
    rows = model.get_input_embeddings().weight.shape[0]
    largest = max(tokenizer.library.get_vocab().values(), default=0)
    if largest >= rows:
        piece = str(tokenizer.library.id_to_token(largest)).strip()
        yield (
            f"its tokenizer has ids up to {largest} ({piece!r}), but its embedding has {rows} rows: save the tokenizer "
            "that it was trained with, or call model.resize_token_embeddings(len(tokenizer)) and train it again"
        )
    padding = getattr(model.config, "pad_token_id", None)
    if padding is not None and not 0 <= padding < rows:
        yield f"pad_token_id in its config is {padding}, but its embedding has {rows} rows: correct the config"


def _faults_of_pairs(model: Any, tokenizer: PairTokenizer) -> Iterator[str]:
    """Faults in how the tokenizer joins question and context."""
    (pair,) = tokenizer.encode([_PAIR])
    parts = pair.sequence_ids
    if 0 not in parts or 1 not in parts:
        yield "its tokenizer makes no token of a plain text: save the tokenizer that it was trained with"
        return
    if parts.index(1) == len(parts) - parts[::-1].index(0):
        yield (
            f"its tokenizer inserts no separator between question and context: {OTHER_ARCHITECTURE}, or save the "
            "model's own tokenizer with it"
        )
    types, largest = _type_count(model), max(pair.type_ids)
    if tokenizer.token_types and types and largest >= types:
        yield (
            f"its tokenizer makes token types up to {largest}, but the model has {types}: save its own tokenizer "
            "with it"
        )


def _fault_of_a_forward(model: Any, tokenizer: PairTokenizer) -> str:
    """Why the model fails on a short question; empty if it does not."""
    import torch

    (pair,) = tokenizer.encode([_PAIR])
    inputs = {"input_ids": torch.tensor([pair.ids]), "attention_mask": torch.ones(1, len(pair), dtype=torch.long)}
    if tokenizer.token_types:
        inputs["token_type_ids"] = torch.tensor([pair.type_ids])
    try:
        with torch.inference_mode():
            output = model(**inputs)
        shapes = {tuple(logits.shape) for logits in (output.start_logits, output.end_logits)}
    except Exception as error:  # a model can raise anything
        return (
            f"{type(model).__name__} fails on a short question ({reason_of(error)}): save the model's own tokenizer "
            f"with it, or {OTHER_ARCHITECTURE}"
        )
    if shapes != {(1, len(pair))}:
        return f"{type(model).__name__} gives no start and end for each token: {OTHER_ARCHITECTURE}"
    return ""


def reason_of(error: BaseException) -> str:
    """Another library's error on one line, such as `TypeError: …`, short enough for our own sentence."""
    return one_line(error)[:_REASON_CHARACTERS].rstrip(".:; ")
