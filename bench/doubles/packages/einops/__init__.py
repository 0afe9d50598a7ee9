"""A double of einops, with the one rearrangement of modelling_RW.py: groups and heads become one dimension."""

import torch


def rearrange(tensor: torch.Tensor, _: str, head_dim: int) -> torch.Tensor:
    """(batch, length, groups, heads, head_dim) → (batch, length, groups × heads, head_dim)."""
    return tensor.reshape(*tensor.shape[:2], -1, head_dim)
