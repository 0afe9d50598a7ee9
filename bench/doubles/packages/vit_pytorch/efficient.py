"""A double of vit_pytorch.efficient for images of 56×56 instead of `image_size`."""

import torch
from linformer import SMALLER
from torch import nn


class ViT(nn.Module):
    """Sends 49 patches and a class token through `transformer`, whose width is smaller by the same factor."""

    def __init__(
        self,
        *,
        dim: int,
        image_size: int,
        patch_size: int,
        num_classes: int,
        transformer: nn.Module,
        channels: int,
    ) -> None:
        super().__init__()
        width = max(dim // SMALLER, 32)
        patches = (image_size // patch_size) ** 2
        self.to_patch_embedding = nn.Conv2d(channels, width, 8, 8)
        self.pos_embedding = nn.Parameter(torch.randn(1, patches + 1, width))
        self.cls_token = nn.Parameter(torch.randn(1, 1, width))
        self.transformer = transformer
        self.mlp_head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, num_classes))

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        hidden = self.to_patch_embedding(pictures).flatten(2).transpose(1, 2)
        hidden = torch.cat([self.cls_token.expand(len(hidden), -1, -1), hidden], 1) + self.pos_embedding
        return self.mlp_head(self.transformer(hidden)[:, 0])
