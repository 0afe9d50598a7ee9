"""Hints for exceptions with a known message."""

import re

from berth.runtime.hints.program import ProgramContext, RaisedException

_LABELS = "labels must be from 0 to num_labels - 1"
_REMEDIES = (
    # The module that runs as a program; berth.serve.workers.process is the inference image's worker.
    (
        r"Can't get attribute '(?P<name>\w+)' on <module "
        r"'(?:__main__|__mp_main__|berth\.serve\.workers\.process|[\w.]+\.__main__)'",
        "{name} was pickled in the script that defines it: move it into a module, import it from there in that script "
        "and here, and save again (for torch save the state_dict)",
    ),
    (
        r"Can't get attribute '(?P<name>\w+)' on <module '(?P<module>[\w.]+)'",
        "{name} was pickled as part of {module}: pack the version of {module} that has it",
    ),
    (
        r"Weights only load failed",
        "save the state_dict, or, for a file that you trust, load it with torch.load(…, weights_only=False)",
    ),
    (r"No module named 'numpy\._core", "the file was pickled with NumPy 2: pickle it with this image's NumPy"),
    (
        r"invalid load key, 'v'|HeaderTooLarge|header too large",
        "the file may be a pointer of Git LFS: run git lfs pull before packing it",
    ),
    (
        r"load_best_model_at_end requires the save and eval strategy to match",
        'give TrainingArguments the same save_strategy as its evaluation strategy, such as "epoch"',
    ),
    # From here on, messages of torch 2.13.
    (
        r"Target (?P<label>-?\d+) is out of bounds",
        _LABELS + ": map the label {label}, or load the model with more num_labels",
    ),
    (
        r"Assertion `t >= 0 && t < n_classes` failed",
        _LABELS + ": map them, or load the model with more num_labels",
    ),
    (
        r"^index out of range in self$",
        "an id is larger than the rows of an embedding: use the model's own tokenizer, call "
        "resize_token_embeddings(len(tokenizer)), or cut the texts to the model's positions",
    ),
    (
        r"DataLoader worker \(pid[^)]*\) (?:is killed by signal: Killed|exited unexpectedly)",
        "a killed worker has usually run out of memory: use fewer num_workers or a smaller batch",
    ),
)
"""Pattern of a message → what to do; the first match is used."""


def hint(raised: RaisedException, context: ProgramContext) -> str:
    """What to save, pack or change instead."""
    if raised.name == "SystemExit" and context.serving:
        return '; a handler must not end its process: put what runs as a script under if __name__ == "__main__"'
    for pattern, remedy in _REMEDIES:
        if match := re.search(pattern, raised.message):
            return f"; {remedy.format(**match.groupdict())}"
    return ""
