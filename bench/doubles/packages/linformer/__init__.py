"""A double of linformer with the same arguments, 1/24 of the width and a third of the layers.

Tokens attend to k mixtures of all tokens (Wang et al., arXiv 2006.04768), so the class token's output depends on every
patch, as in the real package.
"""

import torch
from torch import nn

SMALLER = 24


class Layer(nn.Module):
    """Attention to `mixtures` of the `tokens`, and two linear layers, each with a residual."""

    def __init__(self, width: int, tokens: int, mixtures: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.mix = nn.Linear(tokens, mixtures, bias=False)
        self.feed = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """The output has the shape of `hidden`: (batch, tokens, width)."""
        normed = self.norm(hidden)
        key = self.mix(self.key(normed).transpose(1, 2))
        value = self.mix(self.value(normed).transpose(1, 2)).transpose(1, 2)
        weight = torch.softmax(self.query(normed) @ key / hidden.shape[-1] ** 0.5, -1)
        hidden = hidden + weight @ value
        return hidden + self.feed(hidden)


class Linformer(nn.Module):
    """Reduces `dim`, `depth` and `k`; uses one head."""

    def __init__(self, dim: int, seq_len: int, depth: int, heads: int, k: int) -> None:
        super().__init__()
        width = max(dim // SMALLER, 32)
        self.net = nn.Sequential(*(Layer(width, seq_len, k // 4) for _ in range(max(depth // 3, 1))))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.net(hidden)
