"""An image data set with a folder per class, and a small ViT that classifies it. Both scripts use it."""

import os
import random
import tempfile
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch.utils.data import Dataset
from transformers import ViTConfig

SIZE = 32
PATTERNS = ["checks", "columns", "rows"]
STRIPE = 4
"""Width of a stripe in pixels."""


class ImageFolder(Dataset):
    """The images in the class folders of `folder`. A class has the number of its folder in alphabetical order."""

    def __init__(self, folder: Path) -> None:
        self.classes = sorted(each.name for each in folder.iterdir() if each.is_dir())
        self.files = [
            (file, label) for label, name in enumerate(self.classes) for file in sorted((folder / name).iterdir())
        ]
        if not self.files:
            raise SystemExit(f"{folder} has no images: add a folder per class, or omit the channel.")

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        file, label = self.files[index]
        with Image.open(file) as image:
            return as_tensor(image), label


def as_tensor(image: Image.Image) -> torch.Tensor:
    """The image as a tensor (3 × height × width) with values from -1 to 1."""
    small = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
    pixels = torch.frombuffer(bytearray(small.tobytes()), dtype=torch.uint8)
    return pixels.view(SIZE, SIZE, 3).permute(2, 0, 1) / 127.5 - 1


def folders() -> tuple[ImageFolder, ImageFolder]:
    """Training and validation images: from the channels `train` and `val`, or made here without the channel `train`."""
    if channel := os.environ.get("SM_CHANNEL_TRAIN"):
        train, val = ImageFolder(Path(channel)), ImageFolder(Path(os.environ.get("SM_CHANNEL_VAL", channel)))
        if train.classes != val.classes:
            raise SystemExit(f"val has the classes {val.classes}, train has {train.classes}: use the same classes.")
        return train, val
    folder = Path(tempfile.mkdtemp())  # each rank makes its own files
    for name, count, seed in (("train", 64, 0), ("val", 16, 1)):
        make_images(folder / name, count, seed)
    return ImageFolder(folder / "train"), ImageFolder(folder / "val")


def make_images(folder: Path, count: int, seed: int) -> None:
    """Write `count` images of each pattern, with random colours and positions that are the same on every rank."""
    chance = random.Random(seed)
    for pattern in PATTERNS:
        (folder / pattern).mkdir(parents=True)
        for number in range(count):
            image = Image.new("RGB", (SIZE, SIZE), any_colour(chance, 0, 100))
            draw(ImageDraw.Draw(image), pattern, any_colour(chance, 150, 255), [chance.randrange(8) for _ in "xy"])
            image.save(folder / pattern / f"{number}.png")


def any_colour(chance: random.Random, low: int, high: int) -> tuple[int, int, int]:
    return chance.randint(low, high), chance.randint(low, high), chance.randint(low, high)


def draw(on: ImageDraw.ImageDraw, pattern: str, colour: tuple[int, int, int], start: list[int]) -> None:
    """Draw a pattern, shifted by `start` (columns, rows)."""
    for column in range(SIZE):
        for row in range(SIZE):
            across, down = (column + start[0]) // STRIPE % 2, (row + start[1]) // STRIPE % 2
            if {"checks": across != down, "columns": across, "rows": down}[pattern]:
                on.point((column, row), colour)


def configuration(classes: list[str]) -> ViTConfig:
    """A ViT with four layers. It has no dropout, so the losses do not depend on the number of ranks."""
    return ViTConfig(
        image_size=SIZE,
        patch_size=8,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=128,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,  # with ViT's default of 0.02 so small a model hardly learns
        id2label=dict(enumerate(classes)),
        label2id={name: number for number, name in enumerate(classes)},
    )
