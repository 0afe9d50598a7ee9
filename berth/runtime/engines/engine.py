"""What an engine is: anything that turns windows into start and end logits.

An engine runs a few batches at a time, and must give the same logits for a window whatever others come with it, up to
rounding. Which windows make a batch is its user's to decide, within what `EngineInfo` says.
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
    """What the model sees of a window: (tokens,) each; the types are None for a model that takes none."""

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
    """What others must know of an engine."""

    description: str
    """Name, version, architecture, precision, device and threads, for the log."""
    precision: str
    """fp32, bf16, fp16 or int8."""
    max_length: int
    """The longest window, in tokens, that the model can take."""
    slots: int
    """Batches that run at one time without hindering each other; `Engine.logits` may be called from as many threads."""
    rows: int
    """Windows of a batch, at most: more are slower."""


class Engine(Protocol):
    """A loaded model."""

    @property
    def info(self) -> EngineInfo:
        """See EngineInfo."""
        ...

    def logits(self, rows: Sequence[WindowTokens], *, alone: bool = False) -> list[RowLogits]:
        """The logits of one batch, in its order. `alone`: no other batch runs or waits, so that this one may have every
        thread.
        """
        ...


def row_of(window: Window) -> WindowTokens:
    """What the model sees of a window."""
    return WindowTokens(window.input_ids, window.token_type_ids)


def logits_of_all(engine: Engine, windows: Sequence[Window]) -> list[RowLogits]:
    """The logits of all windows, in their order, one batch after the other."""
    found: list[RowLogits | None] = [None] * len(windows)
    for batch in by_length([len(window.input_ids) for window in windows], engine.info.rows):
        logits = engine.logits([row_of(windows[index]) for index in batch], alone=True)
        for index, one in zip(batch, logits, strict=True):
            found[index] = one
    return [one for one in found if one is not None]
