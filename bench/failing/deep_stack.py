"""Trains a deep model with ids outside of its vocabulary: a stack of more than 80 frames."""

import torch
from torch import nn
from transformers import Trainer, TrainingArguments


class Level(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.below = Level(depth - 1) if depth else nn.Embedding(10, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.below(ids)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.levels = Level(24)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": self.levels(input_ids).mean() + 0 * labels.sum()}


def main() -> None:
    rows = [{"input_ids": torch.tensor([99]), "labels": torch.tensor(0)}] * 4
    arguments = TrainingArguments("/tmp/deep-stack", max_steps=1, report_to="none", use_cpu=True)
    Trainer(Classifier(), arguments, train_dataset=rows).train()


main()
