"""From windows to batches: the dataset that Trainer draws from, the collator that pads, the sampler that groups.

The sampler is ours because transformers' uses the global random state. The ranks' states differ as soon as dropout has
used them: from the second epoch on each rank would have another order, with some questions twice and others never.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler

from berth.qa.squad import Example
from berth.qa.windows import Window
from berth.runtime.engines.batches import pad
from berth.train.run_qa.inputs.window_file import WindowFile

MEGABATCH = 50  # batches that are sorted together; more of them give less padding, but mix the windows less


class WindowDataset(Dataset[dict[str, Any]]):
    """Windows as arguments of the model: unpadded arrays (tokens,) and, if the window has them, its labels."""

    def __init__(self, windows: Sequence[Window] | WindowFile) -> None:
        self.windows = windows
        self.lengths = (
            windows.lengths
            if isinstance(windows, WindowFile)
            else np.array([len(window.input_ids) for window in windows], dtype=np.int64)
        )

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        window = self.windows[index]
        item: dict[str, Any] = {"input_ids": window.input_ids}
        if window.token_type_ids is not None:
            item["token_type_ids"] = window.token_type_ids
        if window.start is not None and window.end is not None:
            item |= {"start_positions": window.start, "end_positions": window.end}
        return item


@dataclass(frozen=True, slots=True)
class Collator:
    """Pads a batch on the right to its longest window, or to `length`; rounds up to `multiple` (8 is fast on GPUs)."""

    pad_token_id: int
    length: int | None = None
    multiple: int = 1

    def __call__(self, items: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Tensors (batch, width) of int64: input_ids, attention_mask, token_type_ids; labels (batch,)."""
        lengths = np.array([len(item["input_ids"]) for item in items])
        width = -(-max(lengths.max(), self.length or 0) // self.multiple) * self.multiple
        batch = {
            name: torch.from_numpy(pad([item[name] for item in items], value, width))
            for name, value in (("input_ids", self.pad_token_id), ("token_type_ids", 0))
            if name in items[0]
        }
        batch["attention_mask"] = torch.from_numpy((np.arange(width) < lengths[:, None]).astype(np.int64))
        for label in ("start_positions", "end_positions"):
            if label in items[0]:
                batch[label] = torch.tensor([item[label] for item in items])
        return batch


def grouped_order(lengths: np.ndarray, group: int, seed: int, epoch: int) -> np.ndarray:
    """An order of all windows in which each run of `group` windows has similar lengths; the runs are shuffled.

    It is a pure function of its arguments, so all ranks agree on it. `group`: the windows of one step on all ranks, so
    one process with the joint batch has the same order. An incomplete run comes last.
    """
    random = np.random.default_rng([seed, epoch])
    order = random.permutation(len(lengths))
    span = group * MEGABATCH
    for first in range(0, len(order), span):
        part = order[first : first + span]
        order[first : first + span] = part[np.argsort(-lengths[part], kind="stable")]
    full = len(order) // group
    runs = order[: full * group].reshape(full, group)
    return np.concatenate([runs[random.permutation(full)].ravel(), order[full * group :]])


class OrderSampler(Sampler[int]):
    """The first `count` windows of an epoch, in its `order`; a `count` above their number repeats the first ones.

    So the last step of an epoch is filled with one rank as well as with several; accelerate would fill it the same way.
    """

    def __init__(self, order: Callable[[int], np.ndarray], count: int) -> None:
        self.order = order
        self.count = count
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Called before each epoch, by the data loader's set_epoch (see trainer.EpochCallback)."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        return map(int, np.resize(self.order(self.epoch), self.count))


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Questions to answer, and their windows. `scored`: whether the data has answers to compare with."""

    examples: list[Example]
    windows: list[Window]
    scored: bool = True
