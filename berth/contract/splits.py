"""The splits of run_qa's data: which task and channels each belongs to. Used by the job and by the check before it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Split:
    """task: the hyperparameter that enables it. channels: the first existing one is read. by_default: whether the
    channel alone, without the hyperparameter, enables the task.
    """

    task: str
    channels: tuple[str, ...]
    by_default: bool = True


# `fit("s3://…")` with one URI and no name calls the channel "training"; some notebooks use "val".
SPLITS = {
    "train": Split("do_train", ("train", "training")),
    "validation": Split("do_eval", ("validation", "val", "test")),
    "test": Split("do_predict", ("test",), by_default=False),
}

_WORDS = {
    "train": {"train", "training"},
    "validation": {"validation", "valid", "val", "dev", "devel", "eval", "evaluation", "heldout"},
    "test": {"test", "testing"},
}
_ALLOWED = {"train": ("train",), "validation": ("validation", "test"), "test": ("test", "validation")}
"""Split → the splits that its file names may suggest: evaluation data are often called test."""
_SHOWN = 3


class NameCheck(NamedTuple):
    """A problem with the names of a split's files: an error or a warning for the log's last line; both may be empty."""

    refusal: str = ""
    warning: str = ""


def guess_split(file: PurePath) -> str:
    """The split that the file's name, or else the nearest folder's name, suggests; empty if none does."""
    for part in (file.name, *reversed(file.parent.parts)):
        words = set(re.split(r"[^a-z]+", part.lower()))
        if splits := [split for split, names in _WORDS.items() if words & names]:
            return splits[0]
    return ""


def check_names(split: str, folder: PurePath, files: Sequence[PurePath]) -> NameCheck:
    """Check whether file names in the `folder` of a split suggest another one, such as dev-v1.1.json for training.

    Next to files of the split itself that is an error; if there are no others, the user chose them: a warning.
    """
    names = [file.relative_to(folder) for file in files]
    foreign = [name for name in names if guess_split(name) not in ("", *_ALLOWED[split])]
    own = [name for name in names if name not in foreign]
    if not foreign:
        return NameCheck()
    shown = ", ".join(map(str, foreign[:_SHOWN])) + (" and others" if len(foreign) > _SHOWN else "")
    other = guess_split(foreign[0])
    what = f"{shown} in {folder}, by {'its name' if len(foreign) == 1 else 'their names'} {other} data"
    if not own:
        return NameCheck(warning=f"the {split} data are {what}")
    return NameCheck(
        f"The {split} data would have {what}, next to {own[0]}: put {other} data into the channel "
        f"{SPLITS[other].channels[0]}, a separate folder, or set {split}_file to the file or subfolder to use."
    )
