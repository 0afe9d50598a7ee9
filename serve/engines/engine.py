"""What an engine is: anything that turns windows into start and end logits.

The handler knows engines by this protocol only. An engine decides how it batches and on what hardware it runs; it must
give the same logits for a window whatever other windows come with it, up to rounding.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from berth.qa.windows import Window

Logits = list[NDArray[np.float32]]


def never() -> bool:
    """Of work that nobody cancels."""
    return False


class Engine(Protocol):
    """A loaded model. `logits` is called from one thread at a time, always the same one."""

    @property
    def description(self) -> str:
        """Name, precision, device and threads, for the start-up log."""
        ...

    @property
    def max_length(self) -> int:
        """The longest window, in tokens, that the model can take."""
        ...

    def logits(self, windows: Sequence[Window], cancelled: Callable[[], bool] = never) -> tuple[Logits, Logits]:
        """Start and end logits: for each window, in the order given, a float32 vector with one value per token.

        `cancelled` is asked before each batch: once it is true, nobody waits for the answer any more, and
        `concurrent.futures.CancelledError` is raised.
        """
        ...
