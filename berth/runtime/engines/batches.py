"""Chooses the windows that go through the model together, and pads them.

Padding costs as much as text, and on a CPU a large batch is slower than its windows one by one, because its activations
don't fit into the cache. So a batch has a few windows of nearly equal length.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WASTE = 0.05
"""The share of a batch's tokens that may be padding: more would cost more than batching gains."""


def by_length(lengths: Sequence[int], size: int = 4, waste: float = WASTE) -> list[list[int]]:
    """Batches of at most `size` indexes of `lengths`, longest first; each index is in exactly one batch.

    In every batch, padding is at most the share `waste` of the padded tokens.
    """
    batches: list[list[int]] = []
    used = 0  # real tokens in the last batch
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
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
    """`rows` as one (rows, length) array of int64, padded on the right with `value`."""
    padded = np.full((len(rows), length), value, dtype=np.int64)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    return padded


def model_inputs(
    rows: Sequence[tuple[NDArray[np.int32], NDArray[np.int32] | None]], pad_id: int, length: int = 0
) -> dict[str, NDArray[np.int64]]:
    """A model's inputs, by name, for rows of input_ids and token_type_ids: each is (rows, length), or (rows, longest
    row) if that is more.
    """
    length = max(length, *(len(ids) for ids, _ in rows))
    inputs = {
        "input_ids": pad([ids for ids, _ in rows], pad_id, length),
        "attention_mask": pad([np.ones(len(ids), np.int32) for ids, _ in rows], 0, length),
    }
    types = [type_ids for _, type_ids in rows if type_ids is not None]
    if len(types) == len(rows):
        inputs["token_type_ids"] = pad(types, 0, length)
    return inputs
