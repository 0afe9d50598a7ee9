"""Writes a job's metrics: metrics.json and history.json into model.tar.gz and output.tar.gz, and the curve,
training.svg, into output.tar.gz.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from berth.runtime import whole_files
from berth.runtime.rank import Rank
from berth.train.run_qa.recipe import Paths
from berth.train.run_qa.reporting import curve, report, summary
from berth.train.run_qa.reporting.progress import LineCallback

_TRAINING_FIGURES = ("loss", "learning_rate", "examples_per_second", "tokens_per_second")

TrainerLog = Sequence[Mapping[str, Any]]
"""TrainerState.log_history. It is in every checkpoint, so a resumed job has the history from the start."""


def history(log: TrainerLog) -> list[dict[str, float]]:
    """Items {step, loss, learning_rate, examples_per_second, tokens_per_second}, one every logging_steps, and
    {step, f1, exact_match}, one for each evaluation. NaN and infinity, as of a diverged loss, are left out, because
    JSON does not have them.
    """
    items = []
    for entry in log:
        if "loss" in entry:
            figures = {name: entry[name] for name in _TRAINING_FIGURES if name in entry}
            items.append({"step": entry["step"]} | _numbers(figures))
        elif "eval_f1" in entry:
            scores = {"f1": entry["eval_f1"], "exact_match": entry["eval_exact_match"]}
            items.append({"step": entry["step"]} | scores)
    return items


def finish(paths: Paths, lines: LineCallback, metrics: Mapping[str, Any], log: TrainerLog) -> None:
    """Write all files of a finished job, and log the table of its metrics."""
    metrics = {**metrics, "seconds": lines.clock.spent()}
    for folder in (paths.model, paths.output_data):
        report.save(folder / "metrics.json", _numbers(metrics))
        report.save(folder / "history.json", history(log))
    _write_curve(paths.output_data, log)
    for line in summary.table(metrics):
        lines.say(line)


@contextmanager
def history_of_a_failure(rank: Rank, folder: Path, log: Callable[[], TrainerLog]) -> Iterator[None]:
    """If the code inside fails, rank 0 writes the history so far to `folder`."""
    try:
        yield
    except BaseException:
        # Raise the original error, even if this write fails, too, because the disk is full.
        with suppress(OSError):
            if rank.leads and history(log()):
                report.save(folder / "history.json", history(log()))
                _write_curve(folder, log())
        raise


def tensorboard_folder(paths: Paths, logging_dir: str | None, environment: Mapping[str, str]) -> str:
    """The folder for TensorBoard's events: the hyperparameter's, else transformers' variable's, else SageMaker's.

    SageMaker passes a TensorBoardOutputConfig to the container as a file with its LocalPath; see
    smdebug/core/config_constants.py and hook_utils.py of awslabs/sagemaker-debugger.
    """
    if requested := logging_dir or environment.get("TENSORBOARD_LOGGING_DIR"):
        return requested
    with suppress(OSError, ValueError, AttributeError):  # no such file, or not such an object: use the default
        if path := json.loads(paths.tensorboard_config.read_text("utf-8")).get("LocalPath"):
            return str(path)
    return str(paths.tensorboard)


def _numbers(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures without NaN and infinity."""
    return {name: value for name, value in figures.items() if not isinstance(value, float) or math.isfinite(value)}


def _write_curve(folder: Path, log: TrainerLog) -> None:
    if any("loss" in entry for entry in log):
        drawn = curve.draw(history(log), f"training to step {log[-1]['step']}")
        whole_files.write(folder / "training.svg", drawn)
