"""The scaler, which a CPU turns off."""

import torch


def GradScaler(**options: object) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cuda", enabled=False)
