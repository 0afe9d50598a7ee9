"""Tests BERTH_TRACE with a job of two ranks, and the callback alone; and the names of TensorBoard's event files, which
tests/images/train/test_tensorboard.py reads.
"""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from transformers import PrinterCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations.integration_utils import TensorBoardCallback

from berth.contract.metric_definitions import METRIC_DEFINITIONS
from berth.runtime.rank import Rank
from berth.train.run_qa.reporting import event_files
from berth.train.run_qa.reporting.trace import TraceCallback, summary

SHARE = re.compile(r"(compute|communication|data|other): (\d+) %")


@pytest.mark.slow
def test_trace_of_two_ranks_writes_files_and_summary(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    """The evaluation between the traced steps must not be in the files. Steps past the end are skipped."""
    hyperparameters = few_steps | {
        "max_steps": "4",
        "eval_strategy": "steps",
        "eval_steps": "3",
        "gradient_accumulation_steps": "2",
    }
    pair = [new_job(tmp_path / f"rank{rank}", tiny_model, hyperparameters) for rank in (0, 1)]
    ends = host.run(*pair, BERTH_TRACE="3-9")
    assert [end.err for end in ends] == ["", ""], "the profiler writes nothing to stderr"
    assert ends[1].out == ""
    lines = [line for line in ends[0].out.splitlines() if line.startswith("trace: ")]
    assert lines[0].startswith("trace: steps 3 to 4  step: "), lines
    shares = {name: int(share) for name, share in SHARE.findall(lines[0])}
    assert list(shares) == ["compute", "communication", "data", "other"]
    assert sum(shares.values()) == pytest.approx(100, abs=2)
    assert shares["compute"] > 0
    read = {each["Name"]: re.search(each["Regex"], lines[0]) for each in METRIC_DEFINITIONS}
    assert {name: float(match[1]) for name, match in read.items() if match} == {
        "trace_step_seconds": float(lines[0].partition("  step: ")[2].split()[0]),
        **{f"trace_{name}_percent": share for name, share in shares.items()},
    }
    assert lines[1:] == [f"trace: files for ui.perfetto.dev, one per rank and step: {pair[0].base}/output/data/trace"]
    for rank, job in enumerate(pair):
        files = sorted((job.base / "output/data/trace").iterdir())
        assert [file.name for file in files] == [f"trace-rank-{rank}-step-{step}.json.gz" for step in (3, 4)]
        for step, file in zip((3, 4), files, strict=True):
            with gzip.open(file) as content:
                events = [each for each in json.load(content)["traceEvents"] if each["ph"] == "X"]
            marks = {each["name"]: each for each in events if each["name"].startswith(("step ", "wait for "))}
            assert set(marks) == {f"step {step}", "wait for data"}
            names = {each["name"] for each in events}
            assert {"gloo:all_reduce", "aten::addmm", "Optimizer.step#SGD.step"} <= names
            end = marks[f"step {step}"]["ts"] + marks[f"step {step}"]["dur"]
            assert not [each for each in events if each["ts"] > end and each["name"].startswith("aten::")]


@pytest.mark.parametrize(
    ("begins_after", "ends_at"), [(0, 8), (12, 20)], ids=["after-the-last-step", "before-the-resumed-step"]
)
def test_steps_that_are_not_trained_leave_one_log_line(tmp_path: Path, begins_after: int, ends_at: int) -> None:
    log: list[str] = []
    callback = TraceCallback(range(10, 13), tmp_path / "trace", Rank(), log.append, cuda=False)
    args = TrainingArguments(tmp_path / "out", use_cpu=True)
    state = TrainerState(global_step=begins_after, max_steps=ends_at)
    callback.on_train_begin(args, state, TrainerControl())
    callback.on_train_end(args, state, TrainerControl())
    (line,) = log
    assert f"this job trains steps {begins_after + 1} to {ends_at} " in line
    assert not (tmp_path / "trace").exists()


def test_write_error_of_a_trace_is_only_a_warning(tmp_path: Path) -> None:
    log: list[str] = []
    (tmp_path / "trace").write_text("a file where the folder should be")
    callback = TraceCallback(range(1, 2), tmp_path / "trace", Rank(), log.append, cuda=False)
    with callback.fetching(1):
        pass
    args = TrainingArguments(tmp_path / "out", use_cpu=True)
    callback.on_step_end(args, TrainerState(global_step=1, max_steps=1), TrainerControl())
    (line,) = log
    assert line.startswith("warning: trace: the files of rank 0 are not written: [Errno 17] File exists")


def rank_result(compute: float, communication: float, steps: int = 2, problem: str = "") -> dict[str, Any]:
    """The result of one rank for steps of a second each."""
    seconds = {"compute": compute, "communication": communication, "data": 0.1, "other": 0.0}
    return {"seconds": [] if problem else [seconds] * steps, "problem": problem}


def test_summary_shows_mean_and_spread_over_ranks() -> None:
    files = "trace: files for ui.perfetto.dev, one per rank and step: /opt/ml/output/data/trace"
    folder, steps = Path("/opt/ml/output/data/trace"), (10, 11)
    assert summary(steps, [rank_result(0.7, 0.2)], folder) == [
        "trace: steps 10 to 11  step: 1.000 s  compute: 70 %  communication: 20 %  data: 10 %  other: 0 %",
        files,
    ]
    assert summary(steps, [rank_result(0.7, 0.2), rank_result(0.6, 0.3)], folder) == [
        "trace: steps 10 to 11  step: 1.000 s  compute: 65 % (60 to 70)  communication: 25 % (20 to 30)  "
        "data: 10 % (10 to 10)  other: 0 % (0 to 0)",
        files,
    ]
    failed = rank_result(0, 0, problem="[Errno 28] No space left on device")
    warning = "warning: trace: the files of rank 1 are not written: [Errno 28] No space left on device"
    assert summary(steps, [rank_result(0.7, 0.2), failed], folder)[0] == warning
    one = rank_result(0.7, 0.2, steps=1)
    assert summary([10], [one], folder)[0].startswith("trace: step 10  step: 1.000 s  compute: 70 %")


def test_each_tensorboard_writer_gets_its_own_file() -> None:
    writers: list[dict[str, Any]] = []
    callback = TensorBoardCallback.__new__(TensorBoardCallback)  # its __init__ needs a package that is not installed
    callback._SummaryWriter, callback.logging_dir = lambda **options: writers.append(options), "/events"
    event_files.keep_apart([PrinterCallback(), callback])
    for _ in range(2):
        callback._init_summary_writer(args=None)
    assert writers == [{"log_dir": "/events", "filename_suffix": suffix} for suffix in (".0", ".1")]
