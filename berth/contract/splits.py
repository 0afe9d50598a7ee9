"""The splits of run_qa's data: which task reads each, and from which channels. For the job, and the check before it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple


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

_WORDS = {
    "train": {"train", "training"},
    "validation": {"validation", "valid", "val", "dev", "devel", "eval", "evaluation", "heldout"},
    "test": {"test", "testing"},
}
_TAKEN = {"train": ("train",), "validation": ("validation", "test"), "test": ("test", "validation")}
"""Split → the splits that a file may be of by its name: data to measure on are often called test."""
_SHOWN = 3


class NameCheck(NamedTuple):
    """What the names of a split's files say against it, empty if nothing: to refuse, or to warn of in the last line."""

    refusal: str = ""
    warning: str = ""


def split_of(file: PurePath) -> str:
    """The split that a file is of by its name, or else by the nearest of its folders; empty if none says."""
    for part in (file.name, *reversed(file.parent.parts)):
        words = set(re.split(r"[^a-z]+", part.lower()))
        if found := [split for split, names in _WORDS.items() if words & names]:
            return found[0]
    return ""


def check_names(split: str, folder: PurePath, files: Sequence[PurePath]) -> NameCheck:
    """Whether files in the `folder` of a split are of another one by their names, such as dev-v1.1.json to train on.

    Next to files of the split itself they are refused; alone they are what the user chose, and warned of.
    """
    names = [file.relative_to(folder) for file in files]
    of_others = [name for name in names if split_of(name) not in ("", *_TAKEN[split])]
    own = [name for name in names if name not in of_others]
    if not of_others:
        return NameCheck()
    shown = ", ".join(map(str, of_others[:_SHOWN])) + (" and others" if len(of_others) > _SHOWN else "")
    other = split_of(of_others[0])
    what = f"{shown} in {folder}, by {'its name' if len(of_others) == 1 else 'their names'} {other} data"
    if not own:
        return NameCheck(warning=f"the {split} data are {what}")
    return NameCheck(
        f"The {split} data would have {what}, next to {own[0]}: put {other} data into the channel "
        f"{SPLITS[other].channels[0]}, a folder of its own, or name the file or subfolder to take by {split}_file."
    )
