"""How `python -m bench.models` judges memory growth."""

import pytest

from bench.models import growth


@pytest.mark.parametrize(
    ("memory", "expected"),
    [([], 1.0), ([[10], [20]], 1.0), ([[10, 12, 11], [10, 15, 9]], 1.1), ([[10, 20], [10, 10]], 2)],
)
def test_growth_is_the_largest_of_all_servers(memory: list[list[int]], expected: float) -> None:
    assert growth(memory) == expected
