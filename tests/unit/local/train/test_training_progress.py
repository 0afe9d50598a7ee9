"""A job's progress, read from the lines of its log."""

import math

import pytest

from berth.local.train.job_screen import (
    HostProgress,
    State,
    TrainingStep,
    is_progress,
    read_progress,
    stands_out,
)

STEP = "step 40 of 312  loss: 2.1300  learning rate: 2.50e-05  examples/s: 12.3  tokens/s: 3456  padding: 8 %"


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        pytest.param("step 40 of 312  loss: 2.13  learning rate: 4.50e-04", TrainingStep(40, 312, 2.13), id="step"),
        pytest.param(f"{STEP}  left: 2:03", TrainingStep(40, 312, 2.13, 12.3, "2:03"), id="with-speed"),
        pytest.param(
            f"{STEP}  memory: 1.2 GB  left: 1:02:03", TrainingStep(40, 312, 2.13, 12.3, "1:02:03"), id="hours"
        ),
        pytest.param("algo-1 | step 1 of 2  loss: 3.0", TrainingStep(1, 2, 3.0), id="step-with-host"),
        pytest.param("step 2 of 9  loss: inf  examples/s: 12.3", TrainingStep(2, 9, math.inf, 12.3), id="infinite"),
        pytest.param("evaluation 20 % done", 20, id="evaluation"),
        pytest.param("algo-1 | f1 = 59.3421", None, id="metric"),
        pytest.param("warning: batch size = large", None, id="warning"),
        pytest.param("berth: step by step", None, id="no-number"),
    ],
)
def test_read_progress(line: str, progress: object) -> None:
    assert read_progress(line) == progress


def test_read_progress_accepts_nan() -> None:
    step = read_progress("step 3 of 9  loss: nan  learning rate: 5.00e-05  examples/s: 12.3  left: 0:06")
    assert isinstance(step, TrainingStep)
    assert math.isnan(step.loss)
    assert (step.number, step.examples, step.left) == (3, 12.3, "0:06")
    assert states("step 2 of 9  loss: 4.1", "step 3 of 9  loss: nan") == [State.TRAINING] * 2


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        pytest.param("algo-1 | f1 = 59.3421", True, id="metric"),
        pytest.param("algo-1 | step 1 of 2  loss: 3.0", True, id="step"),
        pytest.param("warning: batch size = large", False, id="warning"),
    ],
)
def test_is_progress(line: str, shown: bool) -> None:
    assert is_progress(line) == shown


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("eval_f1 = 59.3421", True),
        ("train_loss = nan", True),
        ("warning: fp16 needs a GPU, and this job uses none: the job continues in fp32", True),
        ("berth: warning: /opt/ml/model holds checkpoint-2", True),
        ("berth: failed: rank 1 on algo-2 was killed by SIGKILL", True),
        ("berth: error: max_seq_length is too long", True),
        ("trace: steps 10 to 12  step: 1.230 s  compute: 71 %", True),
        ("summary  training:        310.5 s", True),
        ("stopping: received SIGTERM, so the job saves its state and ends", True),
        ("going on from /opt/ml/checkpoints/checkpoint-20", True),
        ("berth: the job ends with exit code 0; 2 ranks ran, but no process group of 2 was formed", True),
        ("berth: the job ends with exit code 0", False),
        (STEP, False),
        ("evaluation 20 % done", False),
        ("model: channel model", False),
        ("", False),
    ],
)
def test_stands_out(line: str, expected: bool) -> None:
    assert stands_out(line) == expected


def states(*lines: str) -> list[State]:
    """The state of a host after each line."""
    host, found = HostProgress(), []
    for line in lines:
        host.take(line)
        found.append(host.state)
    return found


def test_states_of_a_host_with_run_qa() -> None:
    log = {
        "berth: launch plan": State.STARTING,
        "berth: rendezvous: algo-2 has joined": State.STARTING,
        "tasks: train and evaluate": State.RUNNING,
        "train data: 400 windows of up to 384 tokens": State.RUNNING,
        STEP: State.TRAINING,
        "evaluation 50 % done": State.EVALUATING,
        "step 60 of 312  loss: 2.0": State.TRAINING,
        "eval_f1 = 59.3421": State.TRAINING,
        "evaluation 10 % done": State.EVALUATING,
        "berth: the job ends with exit code 0": State.ENDED,
    }
    assert states(*log) == list(log.values())


def test_states_of_a_host_with_own_program() -> None:
    log = {
        "berth: rendezvous: joined the leader algo-1": State.STARTING,
        "berth: pip: Collecting tabulate": State.STARTING,
        "": State.STARTING,
        "epoch 1": State.RUNNING,
        "stopping: received SIGTERM, so the job saves its state and ends": State.STOPPING,
        STEP: State.STOPPING,
        "berth: the job ends with exit code 143; stopped": State.ENDED,
    }
    assert states(*log) == list(log.values())


def test_host_keeps_its_last_step_and_last_other_line() -> None:
    host = HostProgress()
    for line in ("train data: channel train", "step 40 of 312  loss: 2.13", "evaluation 50 % done"):
        host.take(line)
    assert host == HostProgress(
        State.EVALUATING, TrainingStep(40, 312, 2.13), percent=50, last_line="train data: channel train"
    )
    host.take("berth: the job ends with exit code 3")
    assert host.exit_code == 3
