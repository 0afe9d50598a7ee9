"""Tests lines in the log: metrics, the progress of a training and its speed; and the seconds of its phases."""

import re
import time
from typing import Any

import psutil
import pytest
import torch
from transformers import TrainerControl, TrainerState

from berth.local.train.job_screen import TrainingStep, read_progress
from berth.runtime.rank import Rank
from berth.train.run_qa.reporting import report
from berth.train.run_qa.reporting.phases import PHASES, PhaseClock, process_age
from berth.train.run_qa.reporting.progress import LineCallback, duration, line
from berth.train.run_qa.reporting.throughput import memory_used

LINE = (
    "step 40 of 312  loss: 2.1300  learning rate: 2.50e-05  examples/s: 12.3  tokens/s: 3456  padding: 8 %"
    "  memory: 1.2 GB  left: 2:03"
)


class Now:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class Arguments:
    """The part of TrainingArguments that LineCallback reads."""

    device = torch.device("cpu")


class Training:
    """A training of one rank, step by step, without a model."""

    def __init__(self, steps: int, every: float, first: int = 0) -> None:
        self.now = Now()
        self.log: list[str] = []
        self.clock = PhaseClock(0.0, self.now)
        self.clock.switch("training")
        self.lines = LineCallback(Rank(), self.log.append, self.clock, every)
        self.state = TrainerState(max_steps=steps, global_step=first)
        self.call("on_train_begin")

    def call(self, event: str, **others: Any) -> None:
        getattr(self.lines, event)(Arguments(), self.state, TrainerControl(), **others)

    def step(self, seconds: float, loss: float = 2.0, rate: float = 0.001) -> None:
        self.now.seconds += seconds
        self.lines.meter.count(torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]), torch.tensor(loss))
        weight = torch.nn.Parameter(torch.zeros(1))
        self.call("on_optimizer_step", optimizer=torch.optim.SGD([weight], lr=rate))
        self.state.global_step += 1
        self.call("on_step_end")

    @property
    def logged_steps(self) -> list[int]:
        return [int(re.match(r"step (\d+) of", text)[1]) for text in self.log]


def test_format_of_a_progress_line() -> None:
    measured = {"examples_per_second": 12.34, "tokens_per_second": 3456.2, "padding_percent": 8.4}
    assert line("40 of 312", 2.13, 2.5e-5, measured, 1.23e9, 123) == LINE
    assert report.plain(LINE) == LINE
    assert not any(re.search(pattern, LINE) for pattern in report.METRIC_PATTERNS)
    assert read_progress(f"algo-1 | {LINE}") == TrainingStep(40, 312, 2.13, examples=12.3, left="2:03")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (123, "2:03"), (3599.7, "1:00:00"), (3723, "1:02:03")]
)
def test_format_of_a_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("options", "seconds", "logged", "at_end"),
    [
        # The first step is slow, as on a GPU.
        ({"steps": 30, "every": 10}, [5.0] + [1.0] * 29, [1, 3, 13, 23, 30], []),
        ({"steps": 100, "every": 1000}, [1.0] * 7, [1], [7]),
        ({"steps": 25, "every": 1000, "first": 20}, [1.0] * 5, [21, 25], []),
    ],
    ids=["line every ten seconds", "early end", "resumed training"],
)
def test_lines_at_first_and_last_step_and_at_intervals(
    options: dict[str, int], seconds: list[float], logged: list[int], at_end: list[int]
) -> None:
    training = Training(**options)
    for each in seconds:
        training.step(each)
    assert training.logged_steps == logged
    training.call("on_train_end")
    assert training.logged_steps == logged + at_end


def test_line_covers_the_steps_since_the_last_line_without_evaluation() -> None:
    training = Training(steps=100, every=2)
    training.step(1.0, loss=9.0)
    with training.clock.during("evaluation"):
        training.now.seconds += 50
    training.step(1.0, loss=4.0)
    training.step(1.0, loss=3.0, rate=0.002)
    assert training.log[-1].startswith(
        "step 3 of 100  loss: 3.5000  learning rate: 2.00e-03  examples/s: 2.0  tokens/s: 6  padding: 25 %  memory: "
    )
    assert training.log[-1].endswith("  left: 1:37"), "97 steps of a second each"


def test_nan_loss_affects_only_its_own_line() -> None:
    training = Training(steps=3, every=0)
    training.step(1.0, loss=float("nan"))
    training.step(1.0, loss=2.0)
    assert [re.search(r"loss: (\S+)", text)[1] for text in training.log] == ["nan", "2.0000"]


def test_logged_speed_covers_the_time_since_the_last_entry() -> None:
    training = Training(steps=10, every=1000)
    training.step(1.0)
    assert training.lines.logged(1) == {"examples_per_second": 2.0, "tokens_per_second": 6.0}
    training.step(4.0)
    assert training.lines.logged(2) == {"examples_per_second": 0.5, "tokens_per_second": 1.5}
    training.call("on_train_end")
    assert training.lines.overall == {"examples_per_second": 0.8, "tokens_per_second": 2.4, "padding_percent": 25.0}


def test_memory_used_by_this_process() -> None:
    assert 50e6 < memory_used(cuda=False) < 50e9


def test_phases_add_up_to_the_age_of_the_process() -> None:
    now = Now()
    clock = PhaseClock(7.0, now)
    for phase, seconds in (("features", 1.0), ("training", 2.0), ("saving", 4.0)):
        clock.switch(phase)
        now.seconds += seconds
    with clock.during("evaluation"):
        now.seconds += 8.0
    now.seconds += 16.0
    assert clock.spent() == {"start": 7.0, "features": 1.0, "training": 2.0, "evaluation": 8.0, "saving": 20.0}
    assert tuple(clock.spent()) == PHASES
    assert sum(clock.spent().values()) == now.seconds - 100.0 + 7.0


def test_process_age() -> None:
    assert process_age() == pytest.approx(time.time() - psutil.Process().create_time(), abs=1.0)


@pytest.mark.parametrize(
    ("value", "text"), [(111.52, "111.52"), (47.0, "47.0"), (0.00001, "0.0"), (1e-3, "0.001"), (59.33333, "59.3333")]
)
def test_format_of_metric_numbers(value: float, text: str) -> None:
    assert report.number(value) == text


@pytest.mark.parametrize(
    "line",
    [
        "bf16=False,",
        "num_train_epochs = 3.0",
        "model: s3://b/f1/x=1",
        "train_runtime  = 0:01:51",
        "a\nf1 = 2",
        "exact_match=1",
    ],
)
def test_other_lines_match_no_metric_pattern(
    line: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BERTH_FAILURE_FILE", raising=False)
    report.say(line)
    report.failure(line)
    captured = capfd.readouterr()
    for written in (captured.out, captured.err):
        assert written.count("\n") == 1
        assert not any(re.search(pattern, written) for pattern in report.METRIC_PATTERNS)


def test_equals_sign_stays_if_no_pattern_matches(capfd: pytest.CaptureFixture[str]) -> None:
    report.say("model: s3://bucket/a=b")
    assert capfd.readouterr().out == "model: s3://bucket/a=b\n"
