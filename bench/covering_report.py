"""The page of the covering set of bench.model_parallel_equality."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from bench import covering, pairwise, report

QUANTITIES = ("loss", "gradients", "parameters", "momentum")
LARGE_LIMIT = 1e-5
"""Larger limits are listed with their reason."""


def difference(group: Sequence[dict[str, Any]], name: str) -> str:
    """The largest difference of a group, with its case's limit if that is above 2e-6."""
    worst = max(group, key=lambda each: each["errors"][name])
    limit = worst["limits"][name]
    return f"{worst['errors'][name]:.1e}" + (f" (limit {limit:.1e})" if limit > 2e-6 else "")


def covering_lines(results: Sequence[tuple[int, dict[str, Any]]], problems: Sequence[str]) -> Iterator[str]:
    """The lines of the covering set."""
    cases = [each for _, each in results]
    factors = [each["factors"] for each in cases]
    possible = set(pairwise.possible_pairs(covering.FACTORS, covering.is_possible))
    covered = {pair for each in factors for pair in pairwise.pairs_of(each, covering.FACTORS)}
    equal = sum(not each["bad"] for each in cases)
    yield (
        f"{len(cases)} cases with {len(covered & possible)} of the {len(possible)} possible pairs of values. {equal} "
        "are equal to one process. Drift is the largest difference between two ranks' copies of a parameter; it must "
        "be 0. With random delays, servers, coordinators and exchanges sleep up to 10 ms before every fifth action.\n"
    )
    columns = ["model", " cases", " with random delays", *QUANTITIES, "drift", " equal"]
    yield from report.table(columns, model_rows(cases))
    yield from problem_lines(cases, problems)
    yield from ["\n### Values of the factors\n", *report.table(["factor", "value: cases"], factor_rows(factors))]
    yield from ["\n### Pairs that no case can contain\n", *report.table([" pairs", "reason"], excluded_rows(possible))]
    yield from ["\n### Time\n", *report.table([" ranks", " cases", " s"], time_rows(results)), ""]
    yield from remarks(cases)


def model_rows(cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A row per model."""
    for kind in [each for each in covering.KINDS if each in {case["kind"] for case in cases}]:
        group = [each for each in cases if each["kind"] == kind]
        delayed = sum(each["factors"]["delays"] is not None for each in group)
        worst = [difference(group, name) for name in QUANTITIES]
        drift = max(each["errors"]["drift"] for each in group)
        yield report.row(kind, len(group), delayed, *worst, f"{drift:g}", sum(not each["bad"] for each in group))


def problem_lines(cases: Sequence[dict[str, Any]], problems: Sequence[str]) -> Iterator[str]:
    """Cases that differ, raise or hang, and cases with a large limit."""
    differing = [each for each in cases if each["bad"]]
    if differing:
        rows = (report.row(f"`{each['factors']}`", each["bad"]) for each in differing)
        yield from ["\n### Cases that differ\n", *report.table(["case", "error, or difference and limit"], rows)]
    for problem in problems:
        yield f"\n```\n{problem[-3000:]}\n```"
    rows = large_limit_rows(cases)
    columns = ["case", "quantity", " difference", " limit", "reason"]
    yield from [f"\n### Limits above {LARGE_LIMIT:.0e}\n", *report.table(columns, rows)]


def large_limit_rows(cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A row per case and quantity whose limit is above LARGE_LIMIT."""
    for each, name in itertools.product(cases, QUANTITIES):
        limit = each["limits"][name]
        if limit > LARGE_LIMIT:
            reason = f"runs of one process differ by {limit / 3:.1e} if only the number of microbatches changes"
            yield report.row(f"`{each['factors']}`", name, f"{each['errors'][name]:.1e}", f"{limit:.1e}", reason)


def factor_rows(cases: Sequence[pairwise.Case]) -> Iterator[str]:
    """A row per factor with the number of cases of each value."""
    for name, values in covering.FACTORS.items():
        counts = Counter(case[name] for case in cases)
        yield report.row(name, ", ".join(f"{value}: {counts[value]}" for value in values))
    yield report.row("random delays", sum(case["delays"] is not None for case in cases))


def excluded_rows(possible: set[pairwise.Pair]) -> Iterator[str]:
    """A row per reason why pairs are impossible."""
    reasons: Counter[str] = Counter()
    for (one, values), (other, other_values) in itertools.combinations(covering.FACTORS.items(), 2):
        for value, other_value in itertools.product(values, other_values):
            if ((one, value), (other, other_value)) not in possible:
                reasons[covering.problem({one: value, other: other_value}) or "no possible case contains both"] += 1
    yield from (report.row(count, reason) for reason, count in reasons.items())


def time_rows(results: Sequence[tuple[int, dict[str, Any]]]) -> Iterator[str]:
    """A row per number of ranks with the time of its cases."""
    for size in sorted({size for size, _ in results}):
        seconds = [each["seconds"] for ranks, each in results if ranks == size]
        yield report.row(size, len(seconds), f"{sum(seconds):.0f}")


def remarks(cases: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What some cases of the set do not test."""
    whole = Counter(
        (each["kind"], each["factors"]["tensor"]) for each in cases if covering.layers_stay_whole(each["factors"])
    )
    named = ", ".join(f"{kind} on {tensor} ({count} cases)" for (kind, tensor), count in sorted(whole.items()))
    yield f"Layers with fewer heads than tensor parallel ranks stay whole: {named or 'in no case'}.\n"
    clipping = [each for each in cases if each["factors"]["clipping"] is not None]
    clipped = sum(each["clipped_steps"] > 0 for each in clipping)
    yield f"Clipping changed the gradients of at least one step in {clipped} of {len(clipping)} cases with clipping."
