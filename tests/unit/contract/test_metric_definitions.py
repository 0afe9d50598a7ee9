"""Applies METRIC_DEFINITIONS to log lines like SageMaker: the first group of a match is the number.

tests/unit/train/run_qa/test_run_qa.py has logs of whole jobs.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import botocore.loaders
import pytest

from berth.contract.metric_definitions import METRIC_DEFINITIONS
from berth.images.pins import pins
from berth.runtime.engines.quantization import Comparison
from berth.train.run_qa.reporting import summary, trace
from berth.train.run_qa.reporting.phases import PHASES
from berth.train.run_qa.reporting.progress import line

RANK_TRACE = {"seconds": [{"compute": 0.7, "communication": 0.2, "data": 0.1, "other": 0.0}] * 2, "problem": ""}
METRICS = {
    "seconds": {phase: 10.0 + turn for turn, phase in enumerate(PHASES)},
    "examples_per_second": 12.25,
    "tokens_per_second": 3456.2,
    "padding_percent": 1.5,
}
MEASURED = {"examples_per_second": 12.3, "tokens_per_second": 3456, "padding_percent": 8.2}
# All metric lines of a job, from the functions that write them, or as text for `name = number`.
LINES = {
    line("40 of 312", 2.13, 2.5e-5, MEASURED, 1.2e9, 123): {
        "loss": 2.13,
        "learning_rate": 2.5e-5,
        "examples_per_second": 12.3,
        "tokens_per_second": 3456,
        "padding_percent": 8,
        "memory_gb": 1.2,
    },
    **{f"{name} = 1.5": {name: 1.5} for name in ("epoch", "train_loss", "train_runtime", "train_samples_per_second")},
    **{f"{name} = 47.0": {name: 47.0} for name in ("eval_loss", "eval_exact_match", "eval_f1")},
    **{
        f"{kind}_{name}: 50.25": {f"{kind}_{name}": 50.25}
        for kind in ("HasAns", "NoAns")
        for name in ("exact", "f1", "total")
    },
    "test_exact_match: 47.1": {"test_exact_match": 47.1},
    "test_f1: 59.3": {"test_f1": 59.3},
    "int8: " + Comparison(600, 47.0, 59.5, 46.5, 59.25, 97.0).sentence(): {
        "int8_f1": 59.25,
        "int8_exact_match": 46.5,
    },
    trace.summary([10, 11], [RANK_TRACE, RANK_TRACE], Path("/trace"))[0]: {
        "trace_step_seconds": 1.0,
        "trace_compute_percent": 70,
        "trace_communication_percent": 20,
        "trace_data_percent": 10,
        "trace_other_percent": 0,
    },
    **dict(
        zip(
            summary.table(METRICS),
            [
                *({f"seconds_{phase}": 10.0 + turn} for turn, phase in enumerate(PHASES)),
                {"seconds_total": 60.0},
                {"job_examples_per_second": 12.2},
                {"job_tokens_per_second": 3456},
                {"job_padding_percent": 1.5},
            ],
            strict=True,
        )
    ),
    # Lines that are no metrics but look similar.
    trace.summary([10], [RANK_TRACE], Path("/opt/ml/output/data: other: 1"))[1]: {},
    "evaluation 40 % done": {},
    "train data: 600 of 600 questions": {},
    "warning: the checkpoint is at step 20 and the job ends at step 20, so nothing is left to train": {},
    "summary  exact match:     47.00": {},
    "summary  F1:              59.30": {},
}


@pytest.mark.parametrize(("text", "metrics"), LINES.items())
def test_log_line_matches_only_its_metrics(text: str, metrics: dict[str, float]) -> None:
    found = {each["Name"]: match for each in METRIC_DEFINITIONS if (match := re.search(each["Regex"], text))}
    assert {name: float(match[1]) for name, match in found.items()} == metrics


def test_every_definition_is_tested() -> None:
    names = [name for metrics in LINES.values() for name in metrics]
    assert sorted(names) == sorted(each["Name"] for each in METRIC_DEFINITIONS)


def test_definitions_are_within_api_limits() -> None:
    shapes = botocore.loaders.Loader().load_service_model("sagemaker", "service-2")["shapes"]
    assert len(METRIC_DEFINITIONS) <= shapes["MetricDefinitionList"]["max"] == 40
    for each in METRIC_DEFINITIONS:
        assert len(each["Name"]) <= shapes["MetricName"]["max"]
        assert len(each["Regex"]) <= shapes["MetricRegex"]["max"]


def test_definitions_need_only_standard_library() -> None:
    program = "from berth.contract.metric_definitions import METRIC_DEFINITIONS; print(len(METRIC_DEFINITIONS))"
    command = [sys.executable, "-S", "-c", program]  # -S: only the standard library
    done = subprocess.run(command, cwd=pins.ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(METRIC_DEFINITIONS)


def test_readme_lists_the_definitions_as_json_and_python() -> None:
    section = (pins.ROOT / "train/README.md").read_text().partition("### Metrics for CloudWatch")[2]
    shown = section.partition("```json\n")[2].partition("\n```")[0]
    assert json.loads(shown) == METRIC_DEFINITIONS
    assert eval(shown) == METRIC_DEFINITIONS, "a notebook pastes the list into its program"
