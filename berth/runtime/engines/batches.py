"""Which windows go through the model together.

Padding costs the same as text, and on a CPU a large batch is slower than its windows one by one, because its
activations leave the cache. So batches hold a few windows of nearly equal length.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WASTE = 0.05
"""The share of a batch's tokens that may be padding: as much as windows gain together."""


def by_length(lengths: Sequence[int], size: int = 4, waste: float = WASTE) -> list[list[int]]:
    """Positions of `lengths` in batches of at most `size`, longest first.

    In every batch at most the share `waste` of the padded tokens is padding. Each position is in exactly one batch.
    """
    batches: list[list[int]] = []
    used = 0  # real tokens in the last batch
    for index in sorted(range(len(lengths)), key=lambda position: -lengths[position]):
        length = lengths[index]
        if batches and len(batches[-1]) < size:
            padded = lengths[batches[-1][0]] * (len(batches[-1]) + 1)
            if padded - used - length <= waste * padded:
                batches[-1].append(index)
                used += length
                continue
        batches.append([index])
        used = length
    return batches


def pad(rows: Sequence[Sequence[int] | NDArray[np.integer]], value: int, length: int) -> NDArray[np.int64]:
    """`rows` as one (rows, length) array of int64, filled up on the right with `value`."""
    padded = np.full((len(rows), length), value, dtype=np.int64)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def model_inputs(
    rows: Sequence[tuple[NDArray[np.int32], NDArray[np.int32] | None]], pad_id: int, length: int = 0
) -> dict[str, NDArray[np.int64]]:
    """The arrays that a model takes of rows of input_ids and token_type_ids, by its names: (rows, length) each, or
    (rows, longest) where that is more.
    """
    length = max(length, *(len(ids) for ids, _ in rows))
    inputs = {
        "input_ids": pad([ids for ids, _ in rows], pad_id, length),
        "attention_mask": pad([np.ones(len(ids), np.int32) for ids, _ in rows], 0, length),
    }
    types = [each for _, each in rows if each is not None]
    if len(types) == len(rows):
        inputs["token_type_ids"] = pad(types, 0, length)
    return inputs
