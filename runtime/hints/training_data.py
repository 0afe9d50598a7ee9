"""Labels and ids that a model does not have, and a DataLoader's worker that is killed: as torch words them (2.13)."""

import re

from berth.runtime.hints.program import ProgramContext, RaisedException

_LABEL = re.compile(r"Target (-?\d+) is out of bounds")
_LABEL_ON_GPU = re.compile(r"Assertion `t >= 0 && t < n_classes` failed")
_LABELS = "labels must be from 0 to num_labels - 1"
_ID = "index out of range in self"
_KILLED = re.compile(r"DataLoader worker \(pid[^)]*\) (?:is killed by signal: Killed|exited unexpectedly)")


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """What to change in the data, the model, or the loader."""
    del context
    if found := _LABEL.search(raised.message):
        return f"; {_LABELS}: map the label {found[1]}, or load the model with more num_labels"
    if _LABEL_ON_GPU.search(raised.message):
        return f"; {_LABELS}: map them, or load the model with more num_labels"
    if _ID in raised.message and any(file.endswith("torch/nn/functional.py") for file in raised.files):
        return (
            "; an id is beyond the rows of an embedding: use the model's own tokenizer, call "
            "resize_token_embeddings(len(tokenizer)), or cut the texts to the model's positions"
        )
    if _KILLED.search(raised.message):
        return "; a worker that is killed has mostly run out of memory: use fewer num_workers or a smaller batch"
    return ""
