"""Measures the time of a call on a GPU, including work that continues after the call has returned."""

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

WARM_UP = 3
ROUNDS = 5
LEAST = {"cuda": 0.3, "cpu": 0.02}  # minimum seconds of a round


def seconds_of(call: Callable[[], Any], device: str) -> float:
    """Seconds of one call: after a warm-up, the median of `ROUNDS` rounds of at least `LEAST` seconds."""
    for _ in range(WARM_UP):
        call()
    repeats = max(1, math.ceil(LEAST[device] / max(seconds_of_round(call, device, 1), 1e-6)))
    return statistics.median(seconds_of_round(call, device, repeats) for _ in range(ROUNDS))


def seconds_of_round(call: Callable[[], Any], device: str, repeats: int) -> float:
    """Average seconds of `repeats` consecutive calls, from an idle device to an idle device."""
    synchronize(device)
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    synchronize(device)
    return (time.perf_counter() - began) / repeats


def synchronize(device: str) -> None:
    """Wait until the device is idle; does nothing on a CPU."""
    if device != "cpu":
        import torch

        torch.cuda.synchronize()
