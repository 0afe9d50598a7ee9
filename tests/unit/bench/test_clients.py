"""Verdicts of `make clients`: a job must succeed, and the requested number of ranks must train together."""

from typing import Any

import pytest

from bench.clients import job_result


@pytest.mark.parametrize(
    ("requested", "ranks", "error", "row"),
    [
        ((1, 1), [1], "", "| v2 A | 1 | ended well | 1 | 1 | 7 |"),
        ((2, 1), [1, 1], "", "| v2 A | 2 | ended well | 2 | 1 | 7 |"),
        ((2, 4), [4, 4, 4, 4], "", "| v2 A | 2 | ended well | 4 | 4 | 7 |"),
        ((2, 4), [1, 1, 1, 1], "", "| v2 A | 2 | **other ranks than requested** | 4 | 1 | 7 |"),
        ((2, 2), [2], "", "| v2 A | 2 | **other ranks than requested** | 1 | 2 | 7 |"),
        ((2, 2), [], "no | such\nimage", "| v2 A | 2 | **no \\| such image** | 0 | – | 7 |"),
    ],
)
def test_row_and_verdict_of_job(requested: tuple[int, int], ranks: list[int], error: str, row: str) -> None:
    seen: list[Any] = [{"ranks": each} for each in ranks]
    result = job_result("v2 A", requested, seen, 7.4, error)
    assert result.row() == row
    assert result.right == ("ended well" in row)


@pytest.mark.parametrize(("world_size", "right"), [(4, True), (2, False)])
def test_metrics_of_run_qa_count_for_all_its_ranks(world_size: int, right: bool) -> None:
    result = job_result("v2 A", (2, 4), [{"world_size": world_size, "eval_f1": 1.0}], 7.4, "")
    assert (result.processes, result.ranks, result.right) == (world_size, {world_size}, right)
