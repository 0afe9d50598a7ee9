"""The splits of run_qa's data: which task reads each, and from which channels. For the job, and the check before it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Split:
    """task: the hyperparameter that wants it; channels: of which the first that is there counts; by_default: whether
    the task is done for such a channel without that hyperparameter.
    """

    task: str
    channels: tuple[str, ...]
    by_default: bool = True


# `fit("s3://…")` with one address and no name calls its channel "training"; notebooks write "val" as well.
SPLITS = {
    "train": Split("do_train", ("train", "training")),
    "validation": Split("do_eval", ("validation", "val", "test")),
    "test": Split("do_predict", ("test",), by_default=False),
}
