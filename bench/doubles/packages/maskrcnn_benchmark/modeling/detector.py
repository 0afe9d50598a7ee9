"""A convolution and a classifier in place of the detector."""

from typing import Any

from torch import nn


def build_detection_model(cfg: Any) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 3))
