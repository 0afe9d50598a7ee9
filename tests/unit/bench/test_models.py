"""The page of `python -m bench.models`."""

from pathlib import Path

import pytest

from bench.models import growth, render
from tests.unit.serve.models.machine import Session


@pytest.mark.parametrize(
    ("memory", "expected"),
    [([], 1.0), ([[10], [20]], 1.0), ([[10, 12, 11], [10, 15, 9]], 1.1), ([[10, 20], [10, 10]], 2)],
)
def test_growth_is_that_of_the_server_that_grew_most(memory: list[list[int]], expected: float) -> None:
    assert growth(memory) == expected


def test_the_page_has_every_count(tmp_path: Path) -> None:
    session = Session(tmp_path, 1)
    session.counts, session.memory, session.steps = {"SIGTERM": 3}, [[10_000_000, 11_000_000]], 77
    page = render("Title", "setting", session)
    assert page.startswith("# Title\n\nsetting\n")
    assert {"| SIGTERM | 3 |", "| 1 | 10.0, 11.0 |"} <= set(page.splitlines())
    assert "77 steps" in page
    assert "1.10 times" in page
