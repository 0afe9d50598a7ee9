"""Batches of like length."""

import numpy as np
import pytest

from berth.runtime.engines.batches import by_length, pad


@pytest.mark.parametrize(
    ("lengths", "batches"),
    [
        ([], []),
        ([7], [[0]]),
        ([384, 384, 384, 384, 384], [[0, 1, 2, 3], [4]]),
        ([10, 384, 12, 380], [[1, 3], [2, 0]]),
        ([100, 50], [[0], [1]]),
        ([100, 90, 80, 70], [[0, 1, 2], [3]]),
    ],
)
def test_by_length(lengths: list[int], batches: list[list[int]]) -> None:
    assert by_length(lengths) == batches


def test_every_window_is_in_one_batch_and_padding_is_bounded() -> None:
    lengths = np.random.default_rng(0).integers(1, 385, size=500).tolist()
    batches = by_length(lengths, size=8, waste=0.05)
    assert sorted(index for batch in batches for index in batch) == list(range(500))
    for batch in batches:
        tokens = [lengths[index] for index in batch]
        assert len(batch) <= 8
        assert 1 - sum(tokens) / (max(tokens) * len(tokens)) <= 0.05 + 1e-9


def test_pad() -> None:
    padded = pad([[5, 6, 7], [8]], 9)
    assert padded.dtype == np.int64
    assert padded.tolist() == [[5, 6, 7], [8, 9, 9]]
