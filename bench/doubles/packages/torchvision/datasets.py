"""Doubles of MNIST and ImageFolder with random images, the same ones in every process."""

from typing import Any, ClassVar

import torch
from torch.utils.data import Dataset


class MNIST(Dataset[tuple[torch.Tensor, int]]):
    """2560 images for training and 128 for testing, 28×28; each class has a bright bar at another place."""

    mirrors: ClassVar[list[str]] = []
    resources: ClassVar[list[tuple[str, str]]] = []

    def __init__(self, root: str, train: bool = True, download: bool = False, transform: Any = None) -> None:  # noqa: FBT001, FBT002
        generator = torch.Generator().manual_seed(3 if train else 4)
        rows = 2560 if train else 128
        self.targets = torch.randint(0, 10, (rows,), generator=generator)
        self.data = torch.randn(rows, 1, 28, 28, generator=generator)
        for row, kind in enumerate(self.targets.tolist()):
            self.data[row, 0, 2 * kind : 2 * kind + 8, 4:24] += 1.0

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return self.data[row], int(self.targets[row])


class ImageFolder(Dataset[tuple[torch.Tensor, int]]):
    """64 images of 3×56×56 in two classes; one class is brighter on the left."""

    def __init__(self, root: str, transform: Any = None) -> None:
        self.root = root
        self.imgs = [(f"{root}/{row}.png", row % 2) for row in range(64)]
        self.data = torch.randn(64, 3, 56, 56, generator=torch.Generator().manual_seed(5))
        self.data[1::2, :, :, :28] += 0.5

    def __len__(self) -> int:
        return len(self.imgs)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        return self.data[row], self.imgs[row][1]
