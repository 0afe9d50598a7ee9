"""What the lines of a job's log say of its progress."""

import pytest

from berth.local.training_progress import EvaluationProgress, TrainingStep, is_metric, read_progress


@pytest.mark.parametrize(
    ("line", "says"),
    [
        pytest.param("step 40 of 312  loss: 2.13  learning rate: 4.50e-04", TrainingStep(40, 312, 2.13), id="step"),
        pytest.param("algo-1 | step 1 of 2  loss: 3.0", TrainingStep(1, 2, 3.0), id="step-under-its-host"),
        pytest.param("evaluation 20 % done", EvaluationProgress(20), id="evaluation"),
        pytest.param("algo-1 | f1 = 59.3421", None, id="metric"),
        pytest.param("warning: batch size = large", None, id="for-people"),
        pytest.param("berth: step by step", None, id="no-number"),
    ],
)
def test_what_a_log_line_says(line: str, says: object) -> None:
    assert read_progress(line) == says


@pytest.mark.parametrize(
    ("line", "metric"),
    [
        pytest.param("algo-1 | f1 = 59.3421", True, id="metric"),
        pytest.param("warning: batch size = large", False, id="for-people"),
    ],
)
def test_a_line_that_gives_a_metric(line: str, metric: bool) -> None:
    assert is_metric(line) == metric
