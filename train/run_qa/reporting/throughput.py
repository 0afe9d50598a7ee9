"""How much a job trains in a second: windows, real tokens, and how much of the batches is padding.

Each rank counts its own batches as they are trained on, without a word to the others and without waiting for a GPU. The
ranks put their counts together where a line of progress or an entry of the history is due, and at no other step.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from berth.runtime.rank import Rank
from berth.train.run_qa.ranks import gather
from berth.train.run_qa.reporting.phases import PhaseClock


@dataclass(frozen=True, slots=True)
class Totals:
    """What all ranks have trained on since they started: up to which `step`, in how many `seconds` (evaluation and
    saving apart), and how many windows. `tokens` are the real ones of the `positions` in the batches.
    """

    step: int
    seconds: float
    windows: int = 0
    tokens: int = 0
    positions: int = 0


@dataclass(frozen=True, slots=True)
class Throughput:
    """Windows and real tokens a second, of all ranks together; padding is a percentage of all that they computed."""

    examples: float
    tokens: float
    padding: float


def throughput(earlier: Totals, later: Totals) -> Throughput:
    """The speed between two readings."""
    seconds = max(later.seconds - earlier.seconds, 1e-9)
    tokens, positions = later.tokens - earlier.tokens, later.positions - earlier.positions
    return Throughput(
        (later.windows - earlier.windows) / seconds,
        tokens / seconds,
        100 * (1 - tokens / positions) if positions else 0.0,
    )


def step_seconds(earlier: Totals, later: Totals) -> float:
    """Seconds that a step took between two readings."""
    return (later.seconds - earlier.seconds) / max(later.step - earlier.step, 1)


class Meter:
    """Counts what this rank trains on."""

    def __init__(self, rank: Rank, clock: PhaseClock) -> None:
        self.rank = rank
        self.clock = clock
        self._windows = self._positions = 0
        # On the device that trains: what is on its way there is added without waiting for it.
        self._tokens: torch.Tensor | int = 0
        self._loss: torch.Tensor | float = 0.0

    def count(self, attention_mask: torch.Tensor, loss: torch.Tensor) -> None:
        """A batch that was trained on: its mask (batch, width), and its share of the step's loss."""
        self._windows += attention_mask.shape[0]
        self._positions += attention_mask.numel()
        self._tokens = self._tokens + attention_mask.sum()
        self._loss = self._loss + loss.detach().double()

    def read(self, step: int) -> Totals:
        """The counts of all ranks, of which each must call it; a GPU has done by then what was counted."""
        mine = [self._windows, int(self._tokens), self._positions]
        windows, tokens, positions = (sum(counts) for counts in zip(*gather(mine, self.rank), strict=True))
        return Totals(step, self.clock.spent()["training"], windows, tokens, positions)

    def take_loss(self) -> float:
        """The sum of this rank's losses since the last call: each step adds its mean."""
        total, self._loss = float(self._loss), 0.0
        return total


def memory_used(*, cuda: bool) -> int:
    """Bytes: the most that torch held on this rank's GPU so far, or what this process holds now."""
    if cuda:
        return torch.cuda.max_memory_allocated()
    resident = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return resident * os.sysconf("SC_PAGE_SIZE")
