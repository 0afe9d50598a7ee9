"""Of smp.nn the layer that a script tells from others."""

import torch


class FusedLayerNorm(torch.nn.LayerNorm):
    pass
