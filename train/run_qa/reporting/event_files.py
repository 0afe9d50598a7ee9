"""Keeps TensorBoard's event files apart: transformers' callback opens a second writer for events after the training."""

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from transformers import TrainerCallback
from transformers.integrations.integration_utils import TensorBoardCallback


def keep_apart(callbacks: Iterable[TrainerCallback]) -> None:
    """Give each writer of transformers' TensorBoard callback, if it is among `callbacks`, a separate file.

    tensorboardX (2.6.5, event_file_writer.py) names a file by the second in which it is opened, and overwrites an
    existing one: the evaluation's file would replace the training's if that took less than a second.
    """
    for callback in callbacks:
        if isinstance(callback, TensorBoardCallback):
            callback._SummaryWriter = _numbered(callback._SummaryWriter)  # type: ignore[assignment]


def _numbered(make_writer: Callable[..., Any]) -> Callable[..., Any]:
    numbers = itertools.count()
    return lambda **options: make_writer(filename_suffix=f".{next(numbers)}", **options)
