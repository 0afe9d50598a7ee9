"""bench/pairwise.py and bench/covering.py: the cases contain every possible pair, and no impossible one."""

import itertools
import json
from collections.abc import Mapping
from typing import Any

import pytest

from bench import covering, covering_report, pairwise

FACTORS = {"color": ("red", "green", "blue"), "size": (1, 2, 3), "lid": (False, True)}
EVERY_CASE = [
    dict(zip(FACTORS, values, strict=True)) for values in itertools.product(*(FACTORS[name] for name in FACTORS))
]
POSSIBLE = {"model": "gpt2", "tensor": 2, "partitions": 2, "replicas": 2, "sharding": "none", "embeddings": "split"}


def small_and_open(case: Mapping[str, Any]) -> bool:
    """Red cases have no lid, and cases of size 3 have one."""
    return not (case.get("color") == "red" and case.get("lid")) and not (
        case.get("size") == 3 and case.get("lid") is False
    )


def pairs(cases: list[pairwise.Case]) -> set[pairwise.Pair]:
    return {pair for case in cases for pair in pairwise.pairs_of(case, FACTORS)}


def test_possible_pairs_are_those_of_all_possible_cases() -> None:
    """Red with size 3 has no case, although neither rule names both."""
    expected = pairs([case for case in EVERY_CASE if small_and_open(case)])
    found = pairwise.possible_pairs(FACTORS, small_and_open)
    assert set(found) == expected
    assert len(found) == len(expected)
    assert (("color", "red"), ("size", 3)) not in expected


@pytest.mark.parametrize("seed", range(5))
def test_cases_contain_all_possible_pairs(seed: int) -> None:
    cases = pairwise.covering_cases(FACTORS, small_and_open, 1, seed)
    assert pairs(cases) == set(pairwise.possible_pairs(FACTORS, small_and_open))
    assert all(map(small_and_open, cases))
    assert len(cases) < len([case for case in EVERY_CASE if small_and_open(case)])


def test_cases_are_different_and_as_many_as_asked_for() -> None:
    cases = pairwise.covering_cases(FACTORS, lambda case: True, 15, 0)
    assert len(cases) == len({tuple(case.values()) for case in cases}) == 15


def test_more_cases_than_possible_are_an_error() -> None:
    with pytest.raises(ValueError, match="18"):
        pairwise.covering_cases(FACTORS, lambda case: True, 19, 0)


def test_covering_set_is_complete_and_the_same_for_one_seed() -> None:
    cases = covering.chosen_cases(0)
    covered = {pair for case in cases for pair in pairwise.pairs_of(case, covering.FACTORS)}
    assert covered == set(pairwise.possible_pairs(covering.FACTORS, covering.is_possible))
    assert len(cases) >= covering.LEAST_CASES
    assert [case for case in cases if covering.problem(case)] == []
    assert sum(case["delays"] is not None for case in cases) == len(cases) // covering.SHARE_WITH_DELAYS
    covering.chosen_cases.cache_clear()
    assert covering.chosen_cases(0) == cases
    assert covering.chosen_cases(1) != cases


def test_launches_run_every_case_once_and_share_references() -> None:
    models = [kind.partition("-")[0] for kind in covering.KINDS]
    runs = {size: covering.cases_of(size, models, 0) for size in (1, 2, 4, 8)}
    assert sum(map(len, runs.values())) == len(covering.chosen_cases(0))
    for cases in runs.values():
        factors = [each["factors"] for each in cases]
        references = [(f["model"], f["microbatches"] * covering.batches(f), f["clipping"]) for f in factors]
        assert len(list(itertools.groupby(references))) == len(set(references))
    assert len(json.dumps(runs[8])) < 120_000, "Linux limits a variable to 128 KiB"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, ""),
        ({"replicas": 4}, "ranks"),
        ({"model": "vit-3"}, "no embeddings"),
        ({"tensor": 1}, "embeddings"),
        ({"tensor": 1, "embeddings": "whole", "prescaled": True}, "prescaled"),
        ({"replicas": 1, "sharding": "optimizer state"}, "replicas"),
        ({"sharding": "parameters"}, "one partition"),
        ({"sharding": "parameters", "partitions": 1}, ""),
        ({"model": "bert-3", "tensor": 4, "partitions": 1}, ""),
    ],
)
def test_problem_of_a_case(change: dict[str, Any], problem: str) -> None:
    found = covering.problem({**POSSIBLE, **change})
    assert problem in found
    assert bool(problem) == bool(found)


@pytest.mark.parametrize(("kind", "tensor", "whole"), [("bert-3", 4, True), ("llama", 4, True), ("neox", 4, False)])
def test_layers_with_fewer_heads_than_ranks_stay_whole(kind: str, tensor: int, whole: bool) -> None:
    assert covering.layers_stay_whole({"model": kind, "tensor": tensor}) == whole


def result(case: pairwise.Case, gradients: float, limit: float = 2e-6) -> dict[str, Any]:
    errors = dict.fromkeys((*covering_report.QUANTITIES, "drift"), 0.0) | {"gradients": gradients}
    limits = dict.fromkeys(errors, limit) | {"drift": 0.0}
    bad = {"gradients": (gradients, limit)} if gradients > limit else {}
    measured = {"errors": errors, "limits": limits, "bad": bad, "seconds": 2.0, "clipped_steps": 9, "distributed": 4}
    return covering.checked({**covering.arguments(case), **measured})


def test_page_counts_pairs_and_lists_large_limits_and_failures() -> None:
    cases = covering.chosen_cases(0)
    results = [(covering.ranks(case), result(case, 1e-7)) for case in cases[2:]]
    reason = covering.reason_of("Traceback …\n[rank3]: RankLost: Rank 0 ended\n\n")
    failed = covering.without_result(covering.arguments(cases[1]), reason)
    results += [(8, result(cases[0], 1.5e-5, 3e-5)), (8, failed)]
    page = "\n".join(covering_report.covering_lines(results, ["rank 3 aborts"]))
    count = len(pairwise.possible_pairs(covering.FACTORS, covering.is_possible))
    assert f"{len(cases)} cases with {count} of the {count} possible pairs" in page
    assert f"{len(cases) - 1} are equal" in page
    assert "| 1.5e-05 | 3.0e-05 | runs of one process differ by 1.0e-05" in page
    assert "rank 3 aborts" in page
    assert "{'error': '[rank3]: RankLost: Rank 0 ended'}" in page
    assert "| inf |" in page


def test_hanging_launch_is_named() -> None:
    assert (
        covering.reason_of("Timeout (0:05:00)!\nThread 0x1 (most recent call first):\n  File x, line 1") == "it hangs"
    )


def test_tensor_parallelism_that_splits_nothing_is_bad() -> None:
    case = next(each for each in covering.chosen_cases(0) if each["tensor"] == 2)
    assert covering.checked({**result(case, 0.0), "distributed": 0})["bad"]
