"""The files of a job's figures: metrics.json and history.json, which go with the model and into output.tar.gz, and the
curve, training.svg, in output.tar.gz.
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

_OF_TRAINING = ("loss", "learning_rate", "examples_per_second", "tokens_per_second")

TrainerLog = Sequence[Mapping[str, Any]]
"""What Trainer keeps of its own log, TrainerState.log_history. It is in every checkpoint, so that a job which goes on
from one has the history of the jobs before it.
"""


def history(log: TrainerLog) -> list[dict[str, float]]:
    """Items {step, loss, learning_rate, examples_per_second, tokens_per_second}, one every logging_steps, and
    {step, f1, exact_match}, one for each evaluation. A figure that is no number, as the loss of a training that came
    apart, is left out: JSON has none such.
    """
    found = []
    for entry in log:
        if "loss" in entry:
            figures = {name: entry[name] for name in _OF_TRAINING if name in entry}
            found.append({"step": entry["step"]} | _numbers(figures))
        elif "eval_f1" in entry:
            scores = {"f1": entry["eval_f1"], "exact_match": entry["eval_exact_match"]}
            found.append({"step": entry["step"]} | scores)
    return found


def finish(paths: Paths, lines: LineCallback, metrics: Mapping[str, Any], price: float | None, log: TrainerLog) -> None:
    """Write everything, of a job that has done its work, and say its table; `price` as of summary.cost."""
    seconds = lines.clock.spent()
    metrics = {**metrics, "seconds": seconds, **summary.cost(sum(seconds.values()), lines.rank.hosts, price)}
    for folder in (paths.model, paths.output_data):
        report.save(folder / "metrics.json", _numbers(metrics))
        report.save(folder / "history.json", history(log))
    _write_curve(paths.output_data, log)
    for line in summary.table(metrics, lines.rank, price):
        lines.say(line)


@contextmanager
def history_of_a_failure(rank: Rank, folder: Path, log: Callable[[], TrainerLog]) -> Iterator[None]:
    """Where what stands inside fails, the history so far is written to `folder`, by rank 0."""
    try:
        yield
    except BaseException:
        # What failed is what the user must hear of, and a full disk may be it.
        with suppress(OSError):
            if rank.leads and history(log()):
                report.save(folder / "history.json", history(log()))
                _write_curve(folder, log())
        raise


def tensorboard_folder(paths: Paths, logging_dir: str | None, environment: Mapping[str, str]) -> str:
    """Where TensorBoard's events go: as the hyperparameter or transformers' variable says, else where SageMaker looks.

    SageMaker tells a container of a TensorBoardOutputConfig by a file of its own, with its LocalPath: so
    smdebug/core/config_constants.py and hook_utils.py of awslabs/sagemaker-debugger read it.
    """
    if asked := logging_dir or environment.get("TENSORBOARD_LOGGING_DIR"):
        return asked
    with suppress(OSError, ValueError, AttributeError):  # none, or nothing of ours: the default is where it looks then
        if path := json.loads(paths.tensorboard_config.read_text("utf-8")).get("LocalPath"):
            return str(path)
    return str(paths.tensorboard)


def _numbers(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Without NaN and infinity."""
    return {name: value for name, value in figures.items() if not isinstance(value, float) or math.isfinite(value)}


def _write_curve(folder: Path, log: TrainerLog) -> None:
    if any("loss" in entry for entry in log):
        drawn = curve.draw(history(log), f"training to step {log[-1]['step']}")
        whole_files.write(folder / "training.svg", drawn)
