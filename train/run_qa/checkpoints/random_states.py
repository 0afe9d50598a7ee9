"""The random states of a rank (Python, NumPy, torch on the CPU and on the rank's GPU) as JSON.

Rank 0 writes the states of all ranks. They are JSON because ranks send each other no pickles (ranks.gather).
"""

import base64
import random
from typing import Any

import numpy as np
import torch


def current() -> dict[str, Any]:
    """The current states, in a form that can be stored as JSON."""
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
    """Restore the states that `current` returned. The GPU's is skipped if there was no GPU then, or is none now."""
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
