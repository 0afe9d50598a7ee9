"""Keeps the number of windows per step if a training resumes with another number of ranks."""

from collections.abc import MutableMapping
from typing import Any

from berth.contract.errors import JobError
from berth.contract.words import counted
from berth.train.run_qa.checkpoints.manifest import CheckpointManifest

_DEFAULTS = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}  # transformers' own


def keep(training: MutableMapping[str, Any], written: CheckpointManifest, ranks: int) -> list[str]:
    """Set batch size and accumulation in `training` so that a step has as many windows as the checkpoint's.

    Returns lines for the log. The batch size never grows. Raises JobError if the ranks can't share the windows.
    """
    windows = written.global_batch
    if windows % ranks:
        raise JobError(
            f"The checkpoint's steps have {windows} windows each, which can't be divided among {ranks} ranks: run a "
            f"number of ranks that divides {windows}, or set overwrite_output_dir to true to start from the beginning."
        )
    size, times = (int(training.get(name, default)) for name, default in _DEFAULTS.items())
    per_rank = windows // ranks
    lines = []
    if size * times != per_rank:
        size = max(each for each in range(1, min(size, per_rank) + 1) if per_rank % each == 0)
        times = per_rank // size
        training.update(zip(_DEFAULTS, (size, times), strict=True))
        lines.append(
            f"a step keeps the checkpoint's {windows} windows: {counted(ranks, 'rank')}, "
            f"per_device_train_batch_size {size}, gradient_accumulation_steps {times}"
        )
    if ranks != written.ranks:
        lines.append(
            f"the checkpoint is from {counted(written.ranks, 'rank')} and this job has {ranks}: the loss will be about "
            "the same, but not bit for bit"
        )
    return lines
