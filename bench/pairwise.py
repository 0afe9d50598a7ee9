"""Chooses cases that together contain every pair of values of two factors; pure.

A case gives each factor one of its values. Some combinations are impossible: `is_possible` decides that, also for a
case that has only some of the factors so far. It must never reject a part of a possible case.
"""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Case = dict[str, Any]
Factors = Mapping[str, Sequence[Any]]
IsPossible = Callable[[Mapping[str, Any]], bool]
Choice = tuple[str, Any]
"""A factor and one of its values."""
Pair = tuple[Choice, Choice]


def possible_pairs(factors: Factors, is_possible: IsPossible) -> list[Pair]:
    """The pairs of values that at least one possible case contains."""
    pairs = []
    for (one, values), (other, other_values) in itertools.combinations(factors.items(), 2):
        for value, other_value in itertools.product(values, other_values):
            if next(completed({one: value, other: other_value}, factors, is_possible), None):
                pairs.append(((one, value), (other, other_value)))
    return pairs


def completed(case: Case, factors: Factors, is_possible: IsPossible) -> Iterator[Case]:
    """The possible cases that contain this part of a case."""
    if not is_possible(case):
        return
    missing = next((name for name in factors if name not in case), None)
    if missing is None:
        yield case
        return
    for value in factors[missing]:
        yield from completed({**case, missing: value}, factors, is_possible)


def pairs_of(case: Mapping[str, Any], factors: Factors) -> Iterator[Pair]:
    """The pairs of a complete case, like those of `possible_pairs`."""
    return itertools.combinations([(name, case[name]) for name in factors], 2)


def covering_cases(factors: Factors, is_possible: IsPossible, count: int, seed: int) -> list[Case]:
    """Different cases, at least `count` of them, that together contain all possible pairs; the same for the same seed.

    Greedy: each case begins with the pair that the earlier cases contain least often. For each further factor it takes
    the possible value that adds the most pairs which are rare so far.
    """
    randomness = random.Random(seed)
    frequencies: Counter[Pair] = Counter(dict.fromkeys(possible_pairs(factors, is_possible), 0))
    cases: list[Case] = []
    possible = sum(1 for _ in itertools.islice(completed({}, factors, is_possible), count))
    if possible < count:
        raise ValueError(f"{count} different cases are needed, but only {possible} are possible.")
    while len(cases) < count or not all(frequencies.values()):
        least = min(frequencies.values())
        start = dict(randomness.choice([pair for pair, often in frequencies.items() if often == least]))
        case = _extended(start, factors, is_possible, (frequencies, randomness))
        frequencies.update(pairs_of(case, factors))
        if case not in cases:
            cases.append(case)
    return cases


def _extended(
    case: Case, factors: Factors, is_possible: IsPossible, state: tuple[Counter[Pair], random.Random]
) -> Case:
    """A possible case that contains this part of a case. state: how often each pair occurs so far, and the choices."""
    frequencies, randomness = state
    place = {name: index for index, name in enumerate(factors)}

    def gain(name: str, value: Any) -> float:
        pairs = (sorted(((name, value), each), key=lambda choice: place[choice[0]]) for each in case.items())
        return sum(4.0 ** -min(frequencies[one, other], 20) for one, other in pairs)

    missing = [name for name in factors if name not in case]
    for name in randomness.sample(missing, len(missing)):
        values = [each for each in factors[name] if next(completed({**case, name: each}, factors, is_possible), None)]
        case = {**case, name: max(randomness.sample(values, len(values)), key=lambda value: gain(name, value))}
    return case
