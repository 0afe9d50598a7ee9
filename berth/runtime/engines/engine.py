"""The interface of an engine: it turns windows into start and end logits.

An engine runs a few batches at a time. A window must get the same logits in every batch, up to rounding. The caller
chooses the batches, within the limits in `EngineInfo`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from berth.qa.windows import IntArray, Window
from berth.runtime.engines.batches import by_length

FloatArray = NDArray[np.float32]


class WindowTokens(NamedTuple):
    """The model's inputs for a window, (tokens,) each; the types are None for a model without token types."""

    input_ids: IntArray
    token_type_ids: IntArray | None

    @property
    def length(self) -> int:
        """Tokens."""
        return len(self.input_ids)


class RowLogits(NamedTuple):
    """Start and end logits of a row, (tokens,) each."""

    start: FloatArray
    end: FloatArray


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the callers of an engine need to know."""

    description: str
    """Name, version, architecture, precision, device and threads, for the log."""
    precision: str
    """fp32, bf16, fp16 or int8."""
    max_length: int
    """The longest window, in tokens, that the model can take."""
    slots: int
    """Batches that run efficiently at a time; `Engine.logits` may be called from as many threads."""
    rows: int
    """The most windows of a batch; larger batches are slower."""


class Engine(Protocol):
    """A loaded model."""

    @property
    def info(self) -> EngineInfo:
        """See EngineInfo."""
        ...

    def logits(self, rows: Sequence[WindowTokens], *, alone: bool = False) -> list[RowLogits]:
        """The logits of one batch, in order. `alone`: no other batch runs or waits, so this one may use all threads."""
        ...


def row_of(window: Window) -> WindowTokens:
    """The model's inputs for a window."""
    return WindowTokens(window.input_ids, window.token_type_ids)


def logits_of_all(engine: Engine, windows: Sequence[Window]) -> list[RowLogits]:
    """The logits of all windows, in their order, one batch after the other."""
    results: list[RowLogits | None] = [None] * len(windows)
    for batch in by_length([len(window.input_ids) for window in windows], engine.info.rows):
        logits = engine.logits([row_of(windows[index]) for index in batch], alone=True)
        for index, row in zip(batch, logits, strict=True):
            results[index] = row
    return [row for row in results if row is not None]
