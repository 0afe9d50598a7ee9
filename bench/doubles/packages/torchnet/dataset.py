"""A double of torchnet.dataset."""

from collections.abc import Mapping
from typing import Any

from torch.utils.data import Dataset


class SplitDataset(Dataset[Any]):
    """A data set that is split; `select` chooses a part. partitions: part → its share."""

    def __init__(self, dataset: Any, partitions: Mapping[str, float]) -> None:
        self._dataset = dataset
        self._ends: dict[str, tuple[int, int]] = {}
        begin = 0
        for name, share in partitions.items():
            end = begin + int(share * len(dataset))
            self._ends[name] = begin, end
            begin = end
        self.select(next(iter(partitions)))

    def select(self, name: str) -> None:
        self._begin, self._end = self._ends[name]

    def __len__(self) -> int:
        return self._end - self._begin

    def __getitem__(self, row: int) -> Any:
        if not 0 <= row < len(self):
            raise IndexError(row)
        return self._dataset[self._begin + row]
