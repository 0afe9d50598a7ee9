"""Splits a sequence of modules into consecutive runs whose largest load is minimal; pure arithmetic."""

from collections.abc import Sequence
from itertools import accumulate

_STEPS_OF_BISECTION = 50
Choice = tuple[float, float]
"""The largest load of a run, and the sum of the squared loads."""


def smallest_bound(costs: Sequence[float], parts: int, first: float = 0.0) -> float:
    """The smallest possible maximum load of `parts` runs. first: load that the first run has already."""
    low = max([first, *costs, (first + sum(costs)) / parts])
    if _parts_under(costs, low, first) <= parts:
        return low
    high = first + sum(costs)
    for _ in range(_STEPS_OF_BISECTION):
        middle = (low + high) / 2
        if _parts_under(costs, middle, first) <= parts:
            high = middle
        else:
            low = middle
    return high


def _parts_under(costs: Sequence[float], bound: float, first: float) -> int:
    """The number of runs if no load may exceed the bound."""
    parts, load = 1, first
    for cost in costs:
        if load + cost > bound:
            parts, load = parts + 1, 0.0
        load += cost
    return parts


def runs(costs: Sequence[float], parts: int, first: float = 0.0, *, empty_first: bool = False) -> list[int]:
    """The run of each cost, 0 to parts - 1, in order. The largest load is minimal and the others are about even.

    first: load that the first run has already. empty_first: the first run may be empty; no other may.
    ValueError if there are too few costs.
    """
    if len(costs) + empty_first < parts:
        raise ValueError(f"{len(costs)} modules can't make {parts} runs.")
    sums = [0.0, *accumulate(costs)]
    best: list[Choice | None] = [
        (first + total, (first + total) ** 2) if place or empty_first else None for place, total in enumerate(sums)
    ]
    begins = []
    for _ in range(1, parts):
        best, begin = _one_run_more(best, sums)
        begins.append(begin)
    starts = [len(costs)]
    for begin in reversed(begins):
        starts.append(begin[starts[-1]])
    return [sum(place >= start for start in starts[1:]) for place in range(len(costs))]


def _one_run_more(best: list[Choice | None], sums: list[float]) -> tuple[list[Choice | None], list[int]]:
    """Per number of costs, the best choice with one more run, and where that run begins."""
    following: list[Choice | None] = [None] * len(sums)
    begin = [0] * len(sums)
    for end in range(1, len(sums)):
        for place in range(end):
            before = best[place]
            if before is None:
                continue
            load = sums[end] - sums[place]
            choice = (max(before[0], load), before[1] + load**2)
            current = following[end]
            if current is None or choice < current:
                following[end], begin[end] = choice, place
    return following, begin
