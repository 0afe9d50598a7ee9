"""What the server and a worker say to each other, over the one socket between them, pickled by multiprocessing.

Both are of one container, one version and one user: no message comes from anywhere else.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from berth.runtime.engines.engine import EngineInfo, RowLogits, WindowTokens


@dataclass(frozen=True, slots=True)
class Ready:
    """From a worker whose model has answered its warm-up question."""

    info: EngineInfo
    tokenizer: str
    """See berth.qa.tokenizer: the server makes the windows."""
    model: str
    """Where the model is, for the log."""
    user_code: str
    load_seconds: float
    warm_up_seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """From a worker that can't answer, now or any more, and ends: why, in one sentence."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Batch:
    """To a worker: the rows of one batch. `alone`: nothing else waits or runs."""

    number: int
    rows: Sequence[WindowTokens]
    alone: bool


@dataclass(frozen=True, slots=True)
class BatchLogits:
    """From a worker: what came of a batch."""

    number: int
    logits: Sequence[RowLogits]


@dataclass(frozen=True, slots=True)
class BatchError:
    """From a worker: the engine raised; `trace` is for the log."""

    number: int
    error: str
    trace: str


FromWorker = Ready | Failed | BatchLogits | BatchError
