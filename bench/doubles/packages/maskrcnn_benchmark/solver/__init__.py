"""SGD with momentum, and its schedule."""

from typing import Any

import torch


def make_optimizer(cfg: Any, model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def make_lr_scheduler(cfg: Any, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.5)
