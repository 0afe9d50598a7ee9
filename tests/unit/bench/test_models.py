"""How `python -m bench.models` judges the memory of its servers."""

import pytest

from bench.models import growth


@pytest.mark.parametrize(
    ("memory", "expected"),
    [([], 1.0), ([[10], [20]], 1.0), ([[10, 12, 11], [10, 15, 9]], 1.1), ([[10, 20], [10, 10]], 2)],
)
def test_growth_is_that_of_the_server_that_grew_most(memory: list[list[int]], expected: float) -> None:
    assert growth(memory) == expected
