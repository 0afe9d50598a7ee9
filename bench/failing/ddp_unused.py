"""Uses DistributedDataParallel with a model that has a layer without influence on the loss."""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(2, 1), nn.Linear(2, 1)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.used(rows)


torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(Two())
for _ in range(2):
    model(torch.ones(4, 2)).mean().backward()
