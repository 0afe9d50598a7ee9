"""What the ranks of a run kept (bench/doubles/start.py), and how far it is from what one process kept."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

TOLERANCE = 2e-6
Weights = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Comparison:
    """Largest differences of rank 0's printed losses and of all replicas' weights; `problems` are sentences."""

    losses: Sequence[float]
    loss: float
    weights: float
    problems: Sequence[str] = ()

    @property
    def distance(self) -> float:
        """The larger one of both; infinite where one is not known."""
        return max((math.inf if math.isnan(each) else each for each in (self.loss, self.weights)), default=math.inf)

    def __str__(self) -> str:
        if not self.losses:
            return "; ".join(self.problems) or "none printed"
        figures = f"{len(self.losses)} losses, {self.losses[0]:.6g} to {self.losses[-1]:.6g}, off by {self.loss:.1e}"
        weights = "" if math.isnan(self.weights) else f", weights by {self.weights:.1e}"
        return "; ".join([f"{figures}{weights}", *self.problems])


def read_losses(folder: Path, pattern: str) -> list[str]:
    """The figures as rank 0 printed them."""
    log = folder / "rank-0.log"
    return re.findall(pattern, log.read_text("utf-8")) if log.is_file() else []


def beyond(mine: str, his: str, tolerance: float) -> bool:
    """Whether two printed figures differ by more than the tolerance, or than one in their last digit."""
    digit = 10.0 ** -len(his.partition(".")[2])
    return not abs(float(mine) - float(his)) <= max(tolerance, 1.01 * digit)


def read_weights(folder: Path) -> dict[int, dict[str, torch.Tensor]]:
    """Per replica, by name, all partitions together."""
    replicas: dict[int, dict[str, torch.Tensor]] = {}
    for path in sorted(folder.glob("rank-*.pt")):
        kept = torch.load(path, weights_only=True)
        replicas.setdefault(kept["replica"], {}).update(kept["weights"])
    return replicas


def largest_difference(one: Weights, other: Weights) -> float:
    """Over all tensors of the same names; infinite where one is not a number."""
    found = [float((value.double() - other[name].double()).abs().max()) for name, value in one.items() if value.numel()]
    return max((math.inf if math.isnan(each) else each for each in found), default=0.0)


def compare(
    ranks: Path, one: Path, pattern: str, tolerance: float = TOLERANCE, *, alone: bool = False, whole: bool = True
) -> Comparison:
    """Ranks with one process, by the folders that each kept.

    alone: the replicas' weights must differ from each other, else agree. whole: the ranks got to the end; if not, the
    losses until then are compared, and no weights.
    """
    printed, expected = read_losses(ranks, pattern), read_losses(one, pattern)
    problems = []
    if not printed or (whole and len(printed) != len(expected)):
        problems.append(f"{len(printed)} losses printed, {len(expected)} by one process")
    pairs = list(zip(printed, expected, strict=False))
    loss = max((abs(float(mine) - float(his)) for mine, his in pairs), default=math.nan)
    if any(beyond(*pair, tolerance) for pair in pairs):
        problems.append("losses differ")
    weights = math.nan
    if whole:
        weights, others = _compare_weights(read_weights(ranks), read_weights(one), tolerance, alone=alone)
        problems += others
    return Comparison([float(each) for each in printed], loss, weights, problems)


def _compare_weights(
    mine: Mapping[int, Weights], his: Mapping[int, Weights], tolerance: float, *, alone: bool
) -> tuple[float, list[str]]:
    """The largest difference, and what is wrong with it."""
    problems = []
    for replica in his.keys() | mine.keys():
        names, known = mine.get(replica, {}).keys(), his.get(replica, {}).keys()
        if names != known:
            problems.append(f"replica {replica} lacks {sorted(known - names)[:3]} and has {sorted(names - known)[:3]}")
    if problems or not his:
        return math.nan, problems or ["no weights were kept"]
    weights = max(largest_difference(his[replica], mine[replica]) for replica in his)
    if not weights <= tolerance:
        problems.append("weights differ")
    between = max(largest_difference(mine[0], mine[replica]) for replica in mine)
    if alone and between < 1e3 * TOLERANCE:
        problems.append("the replicas' weights should differ")
    if not alone and between > 0:
        problems.append(f"the replicas' weights differ by {between:.1e}")
    return weights, problems
