"""Batches of windows of similar length, and their padding."""

import numpy as np
import pytest

from berth.runtime.engines.batches import by_length, model_inputs


@pytest.mark.parametrize(
    ("lengths", "batches"),
    [
        ([], []),
        ([7], [[0]]),
        ([384, 384, 384, 384, 384], [[0, 1, 2, 3], [4]]),
        ([11, 384, 12, 380], [[1, 3], [2, 0]]),
        ([100, 50], [[0], [1]]),
        ([100, 95, 90, 85], [[0, 1, 2], [3]]),
    ],
)
def test_by_length(lengths: list[int], batches: list[list[int]]) -> None:
    assert by_length(lengths) == batches


def test_batches_contain_every_window_with_bounded_padding() -> None:
    lengths = np.random.default_rng(0).integers(1, 385, size=500).tolist()
    batches = by_length(lengths, size=8, waste=0.05)
    assert sorted(index for batch in batches for index in batch) == list(range(500))
    for batch in batches:
        tokens = [lengths[index] for index in batch]
        assert len(batch) <= 8
        assert 1 - sum(tokens) / (max(tokens) * len(tokens)) <= 0.05 + 1e-9


@pytest.mark.parametrize(("length", "width"), [(0, 3), (3, 3), (5, 5)])
def test_model_inputs_are_padded(length: int, width: int) -> None:
    ids, types = np.array([5, 6, 7], np.int32), np.array([0, 1, 1], np.int32)
    inputs = model_inputs([(ids, types), (ids[:1], types[:1])], 9, length)
    filled = width - 3
    assert {name: array.tolist() for name, array in inputs.items()} == {
        "input_ids": [[5, 6, 7, *[9] * filled], [5, 9, 9, *[9] * filled]],
        "attention_mask": [[1, 1, 1, *[0] * filled], [1, 0, 0, *[0] * filled]],
        "token_type_ids": [[0, 1, 1, *[0] * filled], [0, 0, 0, *[0] * filled]],
    }
    assert {array.dtype for array in inputs.values()} == {np.dtype(np.int64)}
