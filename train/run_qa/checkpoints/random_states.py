"""The random states of a rank: Python's, NumPy's, torch's on the CPU and on the rank's own GPU, as JSON.

Rank 0 writes those of all ranks, and what travels between ranks is no pickle (ranks.gather).
"""

import base64
import random
from typing import Any

import numpy as np
import torch


def current() -> dict[str, Any]:
    """The states as they are, to be kept or sent."""
    version, numbers, gauss = random.getstate()
    name, keys, *rest = np.random.get_state()
    states = {
        "python": [version, list(numbers), gauss],
        "numpy": [name, np.asarray(keys).tolist(), *rest],
        "torch": _text(torch.random.get_rng_state()),
    }
    if torch.cuda.is_available():
        states["cuda"] = _text(torch.cuda.get_rng_state())
    return states


def restore(states: dict[str, Any]) -> None:
    """Go on from what `current` gave. The GPU's is left alone where there was none, or is none now."""
    version, numbers, gauss = states["python"]
    random.setstate((version, tuple(numbers), gauss))
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))
    torch.random.set_rng_state(_tensor(states["torch"]))
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(_tensor(states["cuda"]))


def _text(state: torch.Tensor) -> str:
    return base64.b64encode(state.cpu().numpy().tobytes()).decode()


def _tensor(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
