"""TensorBoard's events in files that stay: transformers' callback takes a second writer for what follows a training."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from transformers import TrainerCallback
from transformers.integrations.integration_utils import TensorBoardCallback


def keep_apart(callbacks: Iterable[TrainerCallback]) -> None:
    """Have each writer of transformers' callback, if it is among these, write a file of its own.

    tensorboardX (2.6.5, event_file_writer.py) names a file by the second in which it is opened, and empties one that is
    there: the evaluation's would take the place of the training's, where that took less than a second.
    """
    for callback in callbacks:
        if isinstance(callback, TensorBoardCallback):
            callback._SummaryWriter = _numbered(callback._SummaryWriter)  # type: ignore[assignment]


def _numbered(make_writer: Callable[..., Any]) -> Callable[..., Any]:
    numbers = itertools.count()
    return lambda **options: make_writer(filename_suffix=f".{next(numbers)}", **options)
