"""The speed of a training: windows and real tokens per second, and the share of padding.

Each rank counts its own batches, without communication and without waiting for a GPU. The ranks add up their counts
only when a progress line or an entry of the history is due.
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
    """The counts of all ranks since the start, up to `step`. `seconds`: of training, without evaluation and saving.
    `positions`: in the batches, with padding. `tokens`: without padding.
    """

    step: int
    seconds: float
    windows: int = 0
    tokens: int = 0
    positions: int = 0


def speed(earlier: Totals, later: Totals) -> dict[str, float]:
    """Windows and real tokens per second of all ranks together between two readings."""
    seconds = max(later.seconds - earlier.seconds, 1e-9)
    return {
        "examples_per_second": round((later.windows - earlier.windows) / seconds, 3),
        "tokens_per_second": round((later.tokens - earlier.tokens) / seconds, 1),
    }


def speed_and_padding(earlier: Totals, later: Totals) -> dict[str, float]:
    """The speed, and the padding in percent of all positions, of which there is at least one."""
    padding = 1 - (later.tokens - earlier.tokens) / (later.positions - earlier.positions)
    return speed(earlier, later) | {"padding_percent": round(100 * padding, 2)}


def step_seconds(earlier: Totals, later: Totals) -> float:
    """Mean seconds per step between two readings."""
    return (later.seconds - earlier.seconds) / max(later.step - earlier.step, 1)


class Meter:
    """Counts the batches that this rank trains on."""

    def __init__(self, rank: Rank, clock: PhaseClock) -> None:
        self.rank = rank
        self.clock = clock
        self._windows = self._positions = 0
        # Tensors on the training device: adding to them does not wait for the GPU.
        self._tokens: torch.Tensor | int = 0
        self._loss: torch.Tensor | float = 0.0

    def count(self, attention_mask: torch.Tensor, loss: torch.Tensor) -> None:
        """A batch that was trained on: its mask (batch, width), and its share of the step's loss."""
        self._windows += attention_mask.shape[0]
        self._positions += attention_mask.numel()
        self._tokens = self._tokens + attention_mask.sum()
        self._loss = self._loss + loss.detach().double()

    def read(self, step: int) -> Totals:
        """The counts of all ranks, which must all call it. Waits until the GPU has finished the counted batches."""
        mine = [self._windows, int(self._tokens), self._positions]
        windows, tokens, positions = (sum(counts) for counts in zip(*gather(mine, self.rank), strict=True))
        return Totals(step, self.clock.spent()["training"], windows, tokens, positions)

    def take_loss(self) -> float:
        """The sum of this rank's step losses since the last call; a step's loss is the mean of its batches."""
        total, self._loss = float(self._loss), 0.0
        return total


def memory_used(*, cuda: bool) -> int:
    """Bytes: the peak of torch's memory on this rank's GPU, or without a GPU this process' resident memory now."""
    if cuda:
        return torch.cuda.max_memory_allocated()
    resident = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return resident * os.sysconf("SC_PAGE_SIZE")
