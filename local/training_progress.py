"""How far a training job is, and what it measured, by the lines of its log: for a progress bar. Pure."""

import re
from dataclasses import dataclass

_STEP = re.compile(r"\bstep (\d+) of (\d+)\s+loss: (\d+(?:\.\d+)?)")
_EVALUATED = re.compile(r"\bevaluation (\d+) % done")
_METRIC = re.compile(r"(?:^|\s)\w+ = -?\d+(?:\.\d+)?$")


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """The optimiser's step `number` of `total`, and the mean loss since the last such line."""

    number: int
    total: int
    loss: float


@dataclass(frozen=True, slots=True)
class EvaluationProgress:
    """How much of the evaluation is done, in percent."""

    percent: int


def read_progress(line: str) -> TrainingStep | EvaluationProgress | None:
    """How far the job is by a line of its log; None if the line does not say it."""
    if found := _STEP.search(line):
        return TrainingStep(int(found[1]), int(found[2]), float(found[3]))
    if found := _EVALUATED.search(line):
        return EvaluationProgress(int(found[1]))
    return None


def is_metric(line: str) -> bool:
    """Whether a line gives a metric's final value: `name = number`."""
    return _METRIC.search(line) is not None
