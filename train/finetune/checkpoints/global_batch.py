"""A training that goes on with another number of ranks: the same windows in each step, shared out anew."""

from collections.abc import MutableMapping
from typing import Any

from berth.qa.faults import counted
from berth.train.finetune.checkpoints.choice import CheckpointError
from berth.train.finetune.checkpoints.manifest import CheckpointManifest

_DEFAULTS = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}  # transformers' own


def share(windows: int, multiple: int, ranks: int, most: int) -> tuple[int, int] | None:
    """How many windows a rank takes at once, `most` at most, and how often before a step, so that a step has `windows`.

    An epoch filled up to a `multiple` of windows stays the same where what all ranks take at once divides it: that goes
    before a larger batch. None where the ranks can't share them.
    """
    if windows % ranks:
        return None
    of_rank = windows // ranks
    fitting = [size for size in range(min(most, of_rank), 0, -1) if of_rank % size == 0]
    exact = [size for size in fitting if multiple % (size * ranks) == 0]
    size = (exact or fitting)[0]
    return size, of_rank // size


def keep(training: MutableMapping[str, Any], written: CheckpointManifest, ranks: int) -> list[str]:
    """Set batch and accumulation in `training` so that a step has as many windows as the checkpoint's; lines for the
    log. Raises CheckpointError with the numbers of ranks that can.
    """
    size, times = (int(training.get(name, default)) for name, default in _DEFAULTS.items())
    windows, multiple = written.global_batch, written.epoch_multiple
    shared = (size, times) if (size, times, ranks) == _layout(written) else share(windows, multiple, ranks, size)
    if shared is None:
        *numbers, last = (str(count) for count in range(1, windows + 1) if windows % count == 0)
        which = f"{', '.join(numbers)} or {last}" if numbers else last
        raise CheckpointError(
            f"The checkpoint's steps have {windows} windows each, which {ranks} ranks can't share: run {which} ranks "
            "in all, or set overwrite_output_dir to true to start from the beginning."
        )
    training.update(zip(_DEFAULTS, shared, strict=True))
    lines = []
    if shared != (size, times):
        lines.append(
            f"a step keeps the checkpoint's {windows} windows: {counted(ranks, 'rank')}, "
            f"per_device_train_batch_size {shared[0]}, gradient_accumulation_steps {shared[1]}"
        )
    if ranks != written.ranks:
        lines.append(
            f"the checkpoint has the random states of {counted(written.ranks, 'rank')}, which {ranks} can't take over: "
            "dropout draws other numbers than it would have"
        )
    if multiple % (shared[0] * ranks):
        lines.append("the last step of an epoch has other windows than with the checkpoint's number of ranks")
    return lines


def _layout(written: CheckpointManifest) -> tuple[int, int, int]:
    return written.per_device_batch, written.accumulation, written.ranks
