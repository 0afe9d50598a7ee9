"""Random numbers that do not depend on which thread or rank is faster.

Every microbatch of a step has a stream of its own, and each call at another rank begins one.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def mixed(*parts: int | str) -> int:
    """A seed from several parts; pure."""
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def random_state() -> Any:
    """Where this process's generators stand."""
    return torch.get_rng_state(), torch.cuda.get_rng_state() if torch.cuda.is_available() else None


def set_random_state(state: Any) -> None:
    """Put this process's generators back to where they stood."""
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1])


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random numbers of a stream of their own; the process's own stream goes on afterwards as if nothing had been."""
    before = random_state()
    torch.manual_seed(seed)
    try:
        yield
    finally:
        set_random_state(before)
