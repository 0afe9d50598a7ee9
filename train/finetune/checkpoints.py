"""Which checkpoint a job goes on from.

A job that was stopped (spot capacity, a time limit) finds its checkpoints back in the checkpoint folder and goes on
from the newest that every rank has. Writing them is Trainer's work.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import torch
from transformers import trainer as transformers_trainer

from berth.contract.errors import JobError
from berth.train.finetune.model import WEIGHTS

# Trainer writes this file last: a checkpoint without it was cut off.
LAST_FILE = "trainer_state.json"


class CheckpointError(JobError):
    """The checkpoint asked for can't be used; the message is one sentence."""


def complete(folder: Path) -> list[int]:
    """Steps of the whole checkpoints in a folder, oldest first."""
    if not folder.is_dir():
        return []
    steps = []
    for entry in folder.iterdir():
        match = re.fullmatch(r"checkpoint-(\d+)", entry.name)
        if match and _is_whole(entry):
            steps.append(int(match[1]))
    return sorted(steps)


def newest_of_all(everyone: Sequence[Sequence[int]]) -> int | None:
    """The newest step that every rank has a checkpoint of. None: there is none, training starts afresh."""
    shared = set(everyone[0]).intersection(*everyone[1:]) if everyone else set()
    return max(shared, default=None)


def given(path: str) -> Path:
    """A checkpoint that the user named. Raises CheckpointError if it is not one."""
    folder = Path(path)
    if not _is_whole(folder):
        raise CheckpointError(
            f"resume_from_checkpoint {path} is not a whole checkpoint (it needs the weights and {LAST_FILE}): "
            "name another, or leave it out to go on from the newest."
        )
    return folder


def of_another(checkpoint: str) -> CheckpointError:
    """The sentence for a checkpoint that does not go into this job's model."""
    return CheckpointError(
        f"The checkpoint {checkpoint} is of another model or optimizer than this job's: set overwrite_output_dir to "
        "true and leave resume_from_checkpoint out to start afresh, or pass the model that it was written with."
    )


@contextmanager
def trusted(checkpoint: str | None) -> Iterator[None]:
    """Lets Trainer read the optimizer and scheduler of a checkpoint with a torch older than 2.6, as profile cu124 has.

    transformers refuses to: there torch.load can be made to run code by a crafted file (CVE-2025-32434). But a job's
    checkpoints are its own, from a folder whose writers decide over its program and model as well, and without them a
    job that was stopped would begin anew. A checkpoint whose weights are no safetensors, as none of ours is, keeps the
    check. Can go with torch 2.5.
    """
    old = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6)
    if not old or checkpoint is None or not (Path(checkpoint) / "model.safetensors").is_file():
        yield
        return
    module: Any = transformers_trainer
    check = module.check_torch_load_is_safe
    module.check_torch_load_is_safe = lambda: None
    # What the state of NumPy's generator is made of; for a newer torch transformers allows it itself.
    reconstruct = numpy.zeros(0).__reduce__()[0]
    numbers: list[Any] = [reconstruct, numpy.ndarray, numpy.dtype, type(numpy.dtype(numpy.uint32))]
    try:
        with torch.serialization.safe_globals(numbers):
            yield
    finally:
        module.check_torch_load_is_safe = check


def _is_whole(folder: Path) -> bool:
    return (folder / LAST_FILE).is_file() and any((folder / name).is_file() for name in WEIGHTS)
