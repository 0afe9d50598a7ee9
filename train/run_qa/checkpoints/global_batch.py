"""A training that goes on with another number of ranks: a step keeps its number of windows."""

from collections.abc import MutableMapping
from typing import Any

from berth.qa.faults import counted
from berth.train.run_qa.checkpoints.choice import CheckpointError
from berth.train.run_qa.checkpoints.manifest import CheckpointManifest

_DEFAULTS = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}  # transformers' own


def keep(training: MutableMapping[str, Any], written: CheckpointManifest, ranks: int) -> list[str]:
    """Set batch and accumulation in `training` so that a step has as many windows as the checkpoint's; lines for the
    log. A rank's batch becomes no larger than `training` has it. Raises CheckpointError if the ranks can't share them.
    """
    windows = written.global_batch
    if windows % ranks:
        raise CheckpointError(
            f"The checkpoint's steps have {windows} windows each, which {ranks} ranks can't share: run a number of "
            f"ranks that divides {windows}, or set overwrite_output_dir to true to start from the beginning."
        )
    size, times = (int(training.get(name, default)) for name, default in _DEFAULTS.items())
    of_rank = windows // ranks
    lines = []
    if size * times != of_rank:
        size = max(each for each in range(1, min(size, of_rank) + 1) if of_rank % each == 0)
        times = of_rank // size
        training.update(zip(_DEFAULTS, (size, times), strict=True))
        lines.append(
            f"a step keeps the checkpoint's {windows} windows: {counted(ranks, 'rank')}, "
            f"per_device_train_batch_size {size}, gradient_accumulation_steps {times}"
        )
    if ranks != written.ranks:
        lines.append(
            f"the checkpoint is of {counted(written.ranks, 'rank')} and this job has {ranks}: the training goes on to "
            "about the same loss, not to the same bits"
        )
    return lines
