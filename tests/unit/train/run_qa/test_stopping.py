"""Tests SIGTERM at several moments of a job: the training is saved, the error says where, and the next job resumes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from safetensors.torch import load_file
from torch.testing._internal.distributed.fake_pg import FakeStore

from berth.runtime.rank import Rank
from berth.train.run_qa.agreement import Agreement, RankRequest
from berth.train.run_qa.stopping import STEP_SECONDS, MicroBatches, overruns, step_seconds, stopped_where
from tests.unit.train.run_qa.conftest import WORSE_AND_WORSE

# The rank sends itself SIGTERM in the `at`-th call of a function, and waits until the thread has received it.
SIGNAL_IN = """
import os, signal, threading
from berth.train.run_qa import export, program, stop_signal, stopping, trainer
from berth.train.run_qa.evaluation import Evaluator
{more}
original = {owner}.{name}
calls = 0
received = threading.Event()
receive = stop_signal.StopSignal._receive
def receive_and_tell(self, number):
    receive(self, number)
    received.set()
stop_signal.StopSignal._receive = receive_and_tell
def counted(*arguments, **named):
    global calls
    calls += 1
    if calls == {at}:
        os.kill(os.getpid(), signal.SIGTERM)
        received.wait(60)
    return original(*arguments, **named)
{owner}.{name} = counted
"""


def signal_in(function: str, at: int = 1, more: str = "") -> str:
    owner, _, name = function.rpartition(".")
    return SIGNAL_IN.format(owner=owner, name=name, at=at, more=more)


STEP = "trainer.QuestionAnsweringTrainer.compute_loss"  # called once per micro-batch
BREAKS_OFF = "stopping.STEP_SECONDS = -1.0"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            (40, None, "/c/40"),
            "at step 40 of 312: all steps are saved; if it is started again with the same checkpoint_s3_uri, the",
        ),
        (
            (40, "/m", None),
            "at step 40 of 312: the model of this step is in /m, but the job has no checkpoint to resume from",
        ),
        (
            (40, "/m", "/c/20"),
            "at step 40 of 312: the model of this step is in /m, but its checkpoint could not be written; if it is",
        ),
        (
            (40, "/m", "/mnt/40", False),
            "at step 40 of 312: the model of this step is in /m; the job resumes from /mnt/40 if that still exists",
        ),
        ((312, "/m", "/c/300"), "after its 312 steps: the model is in /m, but the evaluation"),
        ((0, None, None), "before the first of its 312 steps was done: start it again."),
    ],
    ids=["checkpoint", "no-checkpoint-folder", "full-disk", "own-folder", "after-the-training", "no-step"],
)
def test_stopped_where_names_the_step_and_the_place_to_resume_from(arguments: tuple[Any, ...], sentence: str) -> None:
    step, model, checkpoint, uploaded = (*arguments, True)[:4]
    paths = [Path(each) if each else None for each in (model, checkpoint)]
    assert stopped_where(step, 312, *paths, uploaded=uploaded).startswith(sentence)


@pytest.mark.parametrize(
    ("waited", "left", "mean", "breaks_off"),
    [(0, 15, 4, False), (1, 15, 4, True), (0, 1, 61, True), (59, 1, 0.5, False), (500, 0, 4, False)],
)
def test_step_overruns_a_minute_after_the_signal(waited: float, left: int, mean: float, breaks_off: bool) -> None:
    assert overruns(waited, left, mean, STEP_SECONDS) == breaks_off


@pytest.mark.parametrize(("checkpoint", "step"), [(0, 60), (40, 60), (70, 30), (300, 0)])
def test_step_limit_leaves_time_for_a_large_checkpoint(checkpoint: float, step: float) -> None:
    """Step and checkpoint together must end within 100 s of the signal; SageMaker kills the job after 120 s."""
    assert step_seconds(checkpoint) == step


def test_exchange_returns_the_previous_round_and_settle_this_one() -> None:
    """The fake process group returns this rank's own values as the sum."""
    alone = Agreement(Rank())
    assert alone.exchange(RankRequest.SAVE) == RankRequest.SAVE
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        agreement = Agreement(Rank(0, 0, 2, 2))
        requests = [RankRequest.SAVE, RankRequest(0), RankRequest.STOP | RankRequest.BREAK_OFF, RankRequest(0)]
        assert [agreement.exchange(each) for each in requests] == [RankRequest(0), *requests[:-1]]
        assert agreement.settle(RankRequest.STOP) == RankRequest.STOP
        assert agreement.settle(RankRequest(0)) == RankRequest(0), "each request is returned once"
    finally:
        dist.destroy_process_group()


def test_micro_batch_time_excludes_the_time_between_steps() -> None:
    batches = MicroBatches()
    assert batches.mean_seconds == 0
    for begin in (10.0, 100.0):
        batches.begin_step(begin)
        batches.count(begin + 2)
        batches.count(begin + 6)
    assert (batches.in_step, batches.mean_seconds) == (2, 3.0)


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.split("-")[1])


@pytest.fixture
def few_steps(few_steps: dict[str, str]) -> dict[str, str]:
    return few_steps | {"export_openvino": "false"}


def share_checkpoints(jobs: Sequence[Any]) -> None:
    """Make all ranks use one checkpoint folder, as on one host."""
    (jobs[0].base / "checkpoints").mkdir()
    for job in jobs[1:]:
        (job.base / "checkpoints").symlink_to(jobs[0].base / "checkpoints")


LONG = {"num_train_epochs": "2", "max_steps": "-1", "gradient_accumulation_steps": "4", "hidden_dropout_prob": "0.1"}


@pytest.mark.slow
def test_signal_to_one_rank_stops_all_and_the_resumed_job_is_exact(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    """The job is stopped twice, the second time in the middle of a step. Its weights must equal an unstopped job's."""
    hyperparameters = few_steps | LONG | {"do_eval": "false"}
    unstopped = [new_job(tmp_path / f"whole{rank}", tiny_model, hyperparameters, range(40)) for rank in (0, 1)]
    host.run(*unstopped)

    pair = [new_job(tmp_path / f"rank{rank}", tiny_model, hyperparameters, range(40)) for rank in (0, 1)]
    share_checkpoints(pair)
    saved_steps = []
    for before in (signal_in(STEP, 6), signal_in(STEP, 15, BREAKS_OFF)):
        pair[1].before = before
        ends = host.run(*pair, code=143)
        newest = pair[0].checkpoints()[-1]
        saved_steps.append(step_of(newest))
        for job, end in zip(pair, ends, strict=True):
            assert f"berth: error: the job was stopped (SIGTERM) at step {saved_steps[-1]} of 8: all" in end.err
            assert f"the job resumes from {job.base}/checkpoints/{newest.name}." in end.err
        assert not (pair[0].base / "model").exists()
    assert "stopping: step 7 would take too long and is broken off" in ends[0].out
    assert saved_steps == [2, 6]
    pair[1].before = ""
    ends = host.run(*pair)
    assert pair[0].metrics()["weights_sha256"] == unstopped[0].metrics()["weights_sha256"]


# Any checkpoint takes too long.
TAKES_TOO_LONG = "stopping.LIMIT_SECONDS = 0.0"


@pytest.mark.slow
def test_step_is_broken_off_if_the_checkpoint_takes_too_long(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    job = new_job(tmp_path, tiny_model, few_steps | {"gradient_accumulation_steps": "4"})
    (tmp_path / "checkpoints").mkdir()
    job.before = signal_in(STEP, 6, TAKES_TOO_LONG)
    (end,) = host.run(job, code=143)
    assert "stopping: step 2 would take too long and is broken off" in end.out
    assert "warning: the checkpoint took " in end.out
    (saved,) = job.checkpoints()
    assert "(SIGTERM) at step 1 of 5: all steps are saved; " in end.err
    assert f"the job resumes from {saved}." in end.err


@pytest.mark.slow
def test_stopped_job_with_a_folder_of_its_own_also_writes_the_model(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    job = new_job(tmp_path, tiny_model, few_steps | {"save_strategy": "epoch", "output_dir": str(tmp_path / "mine")})
    job.before = signal_in(STEP, 3)
    (end,) = host.run(job, code=143)
    (saved,) = (tmp_path / "mine").iterdir()
    assert f"model of this step is in {tmp_path}/model; the job resumes from {saved} if that still" in end.err
    assert job.metrics()["train_steps"] == 3
    assert job.weights().keys() == load_file(saved / "model.safetensors").keys()


@pytest.mark.parametrize(
    ("disk", "cause"),
    [("", ""), ("ro", "Read-only file system"), ("size=64k", "No space left on device")],
    ids=["no-checkpoint-folder", "read-only", "full"],
)
@pytest.mark.slow
def test_stopped_job_that_cannot_save_writes_the_model(
    disk: str,
    cause: str,
    tmp_path: Path,
    tiny_model: Path,
    host: Any,
    new_job: Any,
    few_steps: dict[str, str],
    mounted: Any,
) -> None:
    job = new_job(tmp_path, tiny_model, few_steps)
    if disk:
        mounted(tmp_path / "checkpoints", disk)
    job.before = signal_in(STEP, 3)
    (end,) = host.run(job, code=143)
    assert f"(SIGTERM) at step 3 of 5: the model of this step is in {tmp_path}/model, but the job has no" in end.err
    assert "a spot interruption loses the training: give the estimator checkpoint_s3_uri" in end.err
    assert "Traceback" not in end.err
    warning = f"warning: no checkpoint of step 3 could be written into {tmp_path}/checkpoints ({cause})"
    assert (warning in end.out) == (tmp_path / "checkpoints").exists() == bool(disk)
    assert job.metrics()["train_steps"] == 3
    assert job.weights()
    assert "train_loss = " not in end.out


@pytest.mark.slow
def test_checkpoint_folder_on_only_one_host_is_refused(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    pair = [new_job(tmp_path / f"rank{rank}", tiny_model, few_steps) for rank in (0, 1)]
    (tmp_path / "rank0/checkpoints").mkdir()
    ends = host.run(*pair, code=1)
    for end in ends:
        assert "error: save_strategy is 'epoch' on rank 0 and 'no' on rank 1: give all hosts the same" in end.err


@pytest.mark.slow
def test_signal_interrupts_an_evaluation(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    evaluations = {
        "load_best_model_at_end": "true",
        "eval_strategy": "steps",
        "eval_steps": "2",
        "per_device_eval_batch_size": "1",
    }
    pair = [new_job(tmp_path / f"rank{rank}", tiny_model, few_steps | evaluations) for rank in (0, 1)]
    share_checkpoints(pair)
    # Each evaluation calls this function eight times, so the 11th call is in the second evaluation.
    pair[0].before = signal_in("stopping.Stopping.interrupted", 11)
    ends = host.run(*pair, code=143)
    assert "(SIGTERM) at step 4 of 5: " in ends[1].err
    assert [step_of(path) for path in pair[0].checkpoints()] == [2, 4]
    assert ends[0].out.count("eval_f1 = ") == 1
    pair[0].before = ""
    ends = host.run(*pair)


@pytest.mark.slow
def test_signal_after_the_training_keeps_the_model(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    job = new_job(tmp_path, tiny_model, few_steps)
    job.before = signal_in("program._save")
    (end,) = host.run(job, code=143)
    assert f"(SIGTERM) after its 5 steps: the model is in {tmp_path}/model, but the evaluation" in end.err
    assert job.metrics()["train_steps"] == 5
    assert "eval_f1" not in job.metrics()


@pytest.mark.slow
def test_signal_before_the_training_ends_the_job_at_once(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    job = new_job(tmp_path, tiny_model, few_steps)
    job.before = signal_in("program.job_data.load")
    (end,) = host.run(job, BERTH_FAILURE_FILE=str(tmp_path / "sentence"), code=143)
    assert (tmp_path / "sentence").read_text() == (
        "the job was stopped (SIGTERM) before it had anything to save: start it again."
    )
    assert "windows of up to" not in end.out
    assert not (tmp_path / "model").exists()


# The main thread waits for a lock inside a C library, where Python can't run signal handlers.
STUCK = """
import ctypes, threading
lock = ctypes.create_string_buffer(64)
def get_stuck():
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(lock)
"""


@pytest.mark.slow
def test_second_signal_ends_a_rank_blocked_in_a_library(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    job = new_job(tmp_path, tiny_model, few_steps)
    job.before = signal_in(STEP, 2, STUCK).replace("received.wait(60)", "get_stuck()")
    (end,) = host.run(job, code=143)
    assert end.err == ""


@pytest.mark.slow
def test_save_minutes_saves_within_an_epoch(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    hyperparameters = few_steps | {
        "num_train_epochs": "1",
        "max_steps": "-1",
        "do_eval": "false",
        "save_minutes": "0.0001",
        "save_total_limit": "99",
    }
    pair = [new_job(tmp_path / f"rank{rank}", tiny_model, hyperparameters) for rank in (0, 1)]
    share_checkpoints(pair)
    ends = host.run(*pair)
    assert "checkpoints: epoch and every 0.0001 minutes, in " in ends[0].out
    assert len(pair[0].checkpoints()) > 2
    assert step_of(pair[0].checkpoints()[-1]) == pair[0].metrics()["train_steps"]
    for path in pair[0].checkpoints():
        assert load_file(path / "model.safetensors")


@pytest.mark.slow
def test_checkpoint_of_a_stop_is_kept_with_save_total_limit_1(
    tmp_path: Path, tiny_model: Path, host: Any, new_job: Any, few_steps: dict[str, str]
) -> None:
    """Trainer itself would delete this checkpoint at the end of the training, and all other folders with such names."""
    evaluations = {
        "load_best_model_at_end": "true",
        "eval_strategy": "steps",
        "eval_steps": "2",
        "save_total_limit": "1",
    }
    job = new_job(tmp_path, tiny_model, few_steps | evaluations | {"max_steps": "6"})
    (tmp_path / "checkpoints/checkpoint-1").mkdir(parents=True)  # an incomplete checkpoint of another program's Trainer
    job.before = WORSE_AND_WORSE + signal_in(STEP, 5)
    (end,) = host.run(job, code=143)
    assert [step_of(path) for path in job.checkpoints()] == [1, 2, 5]
    assert f"the job resumes from {job.checkpoints()[-1]}." in end.err
