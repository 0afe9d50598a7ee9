"""Tests the files of a job's metrics, its table and its curve, and the choice of TensorBoard's folder."""

import json
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from berth.runtime.rank import Rank
from berth.train.run_qa.recipe import Paths
from berth.train.run_qa.reporting import curve, records, summary
from berth.train.run_qa.reporting.phases import PHASES, PhaseClock
from berth.train.run_qa.reporting.progress import LineCallback

# TrainerState.log_history
LOG = [
    {"loss": 4.0, "grad_norm": 2.0, "learning_rate": 0.1, "examples_per_second": 10.0, "epoch": 0.1, "step": 10},
    {"eval_f1": 59.0, "eval_exact_match": 47.0, "eval_loss": 2.0, "epoch": 0.1, "step": 10},
    {"loss": 3.0, "learning_rate": 0.0, "examples_per_second": 11.0, "tokens_per_second": 900.0, "step": 20},
    {"train_runtime": 9.0, "train_loss": 3.5, "step": 20},
]
HISTORY = [
    {"step": 10, "loss": 4.0, "learning_rate": 0.1, "examples_per_second": 10.0},
    {"step": 10, "f1": 59.0, "exact_match": 47.0},
    {"step": 20, "loss": 3.0, "learning_rate": 0.0, "examples_per_second": 11.0, "tokens_per_second": 900.0},
]
SVG = "{http://www.w3.org/2000/svg}"
TABLE = """\
summary  start:             4.1 s
summary  features:          2.0 s
summary  training:        310.5 s
summary  evaluation:       44.2 s
summary  saving:            3.9 s
summary  total:           364.7 s
summary  examples/s:       12.3
summary  tokens/s:         3456
summary  padding:           8.4 %
summary  exact match:     47.00
summary  F1:              59.34"""


def test_nan_and_infinity_are_omitted(tmp_path: Path) -> None:
    log = [{**LOG[0], "loss": math.nan}, {**LOG[2], "loss": math.inf}]
    lines = LineCallback(Rank(), lambda text: None, PhaseClock(3.0, lambda: 0.0), 10)
    records.finish(Paths(tmp_path), lines, {"train_loss": math.nan, "train_steps": 20}, log)
    for name in ("metrics.json", "history.json"):
        text = (tmp_path / "model" / name).read_text()
        assert "NaN" not in text
        assert "Infinity" not in text
    assert [entry["step"] for entry in records.history(log)] == [10, 20]
    assert json.loads((tmp_path / "model/metrics.json").read_text()).keys() == {"train_steps", "seconds"}
    assert texts((tmp_path / "output/data/training.svg").read_text())[1] == "throughput"


def test_summary_table() -> None:
    seconds = dict(zip(PHASES, (4.1, 2.0, 310.5, 44.2, 3.9), strict=True))
    metrics = {
        "seconds": seconds,
        "examples_per_second": 12.345,
        "tokens_per_second": 3456.4,
        "padding_percent": 8.41,
        "eval_f1": 59.341,
        "eval_exact_match": 47.0,
    }
    assert "\n".join(summary.table(metrics)) == TABLE


def test_finish_writes_all_files_and_logs_the_table(tmp_path: Path) -> None:
    log_lines: list[str] = []
    lines = LineCallback(Rank(), log_lines.append, PhaseClock(3600.0, lambda: 0.0), 10)
    records.finish(Paths(tmp_path), lines, {"eval_f1": 59.0}, LOG)
    metrics = {"eval_f1": 59.0, "seconds": dict.fromkeys(PHASES, 0.0) | {"start": 3600.0}}
    for folder in ("model", "output/data"):
        assert json.loads((tmp_path / folder / "metrics.json").read_text()) == metrics
        assert json.loads((tmp_path / folder / "history.json").read_text()) == HISTORY
    assert not (tmp_path / "model/training.svg").exists()
    assert (tmp_path / "output/data/training.svg").read_text() == curve.draw(HISTORY, "training to step 20")
    assert log_lines[5:] == [
        "summary  total:          3600.0 s",
        "summary  F1:              59.00",
    ]


@pytest.mark.parametrize("rank", [0, 1])
def test_leader_writes_the_history_of_a_failed_job(rank: int, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), records.history_of_a_failure(Rank(rank, 0, 2, 1), tmp_path, lambda: LOG):
        raise RuntimeError
    written = {path.name for path in tmp_path.iterdir()}
    assert written == ({"history.json", "training.svg"} if rank == 0 else set())
    if rank == 0:
        assert json.loads((tmp_path / "history.json").read_text()) == HISTORY


def test_failure_is_raised_although_its_history_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeError), records.history_of_a_failure(Rank(), tmp_path / "file", lambda: LOG):
        raise RuntimeError
    with pytest.raises(RuntimeError), records.history_of_a_failure(Rank(), tmp_path / "none", lambda: []):
        raise RuntimeError
    assert not (tmp_path / "none").exists(), "no history before the first step"


@pytest.mark.parametrize(
    ("config", "logging_dir", "variable", "folder"),
    [
        (None, None, None, "BASE/output/tensorboard"),
        ('{"S3OutputPath": "s3://b/p"}', None, None, "BASE/output/tensorboard"),
        ('{"LocalPath": "/opt/ml/tb"}', None, None, "/opt/ml/tb"),
        ("[]", None, None, "BASE/output/tensorboard"),
        ("not JSON", None, None, "BASE/output/tensorboard"),
        ('{"LocalPath": "/opt/ml/tb"}', None, "/mine", "/mine"),
        ('{"LocalPath": "/opt/ml/tb"}', "/requested", "/mine", "/requested"),
    ],
)
def test_precedence_of_tensorboard_folders(
    config: str | None, logging_dir: str | None, variable: str | None, folder: str, tmp_path: Path
) -> None:
    paths = Paths(tmp_path)
    if config is not None:
        paths.tensorboard_config.parent.mkdir(parents=True)
        paths.tensorboard_config.write_text(config)
    environment = {"TENSORBOARD_LOGGING_DIR": variable} if variable else {}
    assert records.tensorboard_folder(paths, logging_dir, environment) == folder.replace("BASE", str(tmp_path))


def texts(svg: str) -> list[str]:
    """All texts of an SVG."""
    return [each.text or "" for each in ET.fromstring(svg).iter(f"{SVG}text")]


def test_curve_draws_one_panel_per_metric() -> None:
    svg = curve.draw(HISTORY, "MiniLM <& co>")
    words = texts(svg)
    assert words[0] == "MiniLM <& co>"
    assert [each for each in words if each in ("training loss", "held-out questions, %", "throughput")] == [
        "training loss",
        "held-out questions, %",
        "throughput",
    ]
    assert {"F1", "exact match", "59.0", "47.0", "4.0", "3.0", "step"} <= set(words)
    lines = list(ET.fromstring(svg).iter(f"{SVG}polyline"))
    assert len(lines) == 4
    x = [float(point.partition(",")[0]) for point in lines[0].get("points", "").split()]
    assert x[0] < x[1] <= 760, "the later step is to the right"


def test_curve_averages_many_steps_and_omits_nan() -> None:
    steps = [{"step": step, "loss": 1.0 + 1 / step} for step in range(1, 100_000)]
    assert len(curve.draw(steps, "title")) < 20_000
    odd = [{"step": 1, "loss": math.nan}, {"step": 2, "loss": math.inf}, {"step": 3, "loss": 0.0}]
    svg = curve.draw(odd, "title")
    assert "nan" not in svg
    assert "inf" not in svg
    assert len(list(ET.fromstring(svg).iter(f"{SVG}circle"))) == 1
