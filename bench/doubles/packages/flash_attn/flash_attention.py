"""A double of flash_attn.flash_attention that computes attention with torch."""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention


class FlashAttention(nn.Module):
    """Attention of queries, keys and values in one tensor."""

    def __init__(self, attention_dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = attention_dropout

    def forward(self, qkv: torch.Tensor) -> tuple[torch.Tensor, None]:
        """qkv: (batch, length, 3, heads, size). The output has the shape (batch, length, heads, size)."""
        query, key, value = qkv.transpose(1, 3).unbind(2)
        dropout = self.dropout if self.training else 0.0
        return scaled_dot_product_attention(query, key, value, dropout_p=dropout).transpose(1, 2), None
