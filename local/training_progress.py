"""What the lines of a training job's log say: progress and metrics, for a progress bar. Pure."""

import re
from dataclasses import dataclass

_STEP = re.compile(r"\bstep (\d+) of (\d+)\s+loss: (\d+(?:\.\d+)?)")
_EVALUATED = re.compile(r"\bevaluation (\d+) % done")
_METRIC = re.compile(r"(?:^|\s)(\w+) = (-?\d+(?:\.\d+)?)$")


@dataclass(frozen=True, slots=True)
class Step:
    """The optimiser's step `number` of `total`, and the mean loss since the last such line."""

    number: int
    total: int
    loss: float


@dataclass(frozen=True, slots=True)
class Evaluated:
    """How much of the evaluation is done, in percent."""

    percent: int


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric's final value: the line `name = number`."""

    name: str
    value: float


def read(line: str) -> Step | Evaluated | Metric | None:
    """What a line says; None if it is for people only."""
    if found := _STEP.search(line):
        return Step(int(found[1]), int(found[2]), float(found[3]))
    if found := _EVALUATED.search(line):
        return Evaluated(int(found[1]))
    if found := _METRIC.search(line):
        return Metric(found[1], float(found[2]))
    return None
